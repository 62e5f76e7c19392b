#include "loadgen/arrivals.h"

#include <cmath>

namespace millrace::loadgen {

double Arrivals::Next() {
  // Not std::exponential_distribution: its sequence is each library's own.
  const double uniform = static_cast<double>(generator_() >> 11) * 0x1p-53;  // [0, 1)
  if (!std::isinf(rate_)) at_s_ += -std::log1p(-uniform) / rate_;
  return at_s_;
}

}  // namespace millrace::loadgen
