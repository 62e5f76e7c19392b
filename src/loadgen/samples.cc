#include "loadgen/samples.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace millrace::loadgen {

void Samples::Add(double value) {
  values_.push_back(value);
  sum_ += value;
  sorted_ = false;
}

double Samples::Quantile(double q) const {
  MILLRACE_CHECK(q >= 0 && q <= 1, "a quantile lies in [0, 1]");
  if (values_.empty()) return 0;
  if (!sorted_) std::ranges::sort(values_);
  sorted_ = true;
  const double at = q * static_cast<double>(values_.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values_.size() - 1);
  return values_[below] + (values_[above] - values_[below]) * (at - std::floor(at));
}

double Samples::Mean() const {
  return values_.empty() ? 0 : sum_ / static_cast<double>(values_.size());
}

}  // namespace millrace::loadgen
