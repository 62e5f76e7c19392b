#pragma once

#include <array>
#include <cstdint>

namespace millrace::model {

// NumPy's default_rng(seed): SeedSequence expansion into PCG64 (XSL-RR 128/64), as the model's n-gram
// multipliers were drawn (shared/spec/v41-text.md, section 6, "Multipliers"). For seeds below 2^64.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed);

  uint64_t Next();
  // Uniform in [0, bound), bound >= 1, by multiplication with rejection.
  uint64_t Below(uint64_t bound);

 private:
  __extension__ using Word128 = unsigned __int128;
  void Step();

  Word128 state_ = 0;
  Word128 increment_ = 0;
};

}  // namespace millrace::model
