#pragma once

#include <cstdint>
#include <random>

namespace millrace::loadgen {

// A Poisson process: when the requests of an open loop arrive. The same seed gives the same times on every
// machine.
class Arrivals {
 public:
  // `rate` is requests a second, above 0; infinite: all at once.
  Arrivals(double rate, uint64_t seed) : rate_(rate), generator_(seed) {}

  // Seconds from the begin of the run to the next arrival; rising.
  double Next();

 private:
  double rate_;
  std::mt19937_64 generator_;
  double at_s_ = 0;
};

}  // namespace millrace::loadgen
