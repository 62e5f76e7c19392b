#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::kernels {

// YaRN's frequency correction (shared/spec/v41-text.md, section 7).
struct YarnScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 0;
};

// Rotary frequencies of `rotated` channels (pairs of adjacent ones), formed in float32 in the order of the
// specification: last-bit differences are amplified by the position.
class RopeTable {
 public:
  static RopeTable Plain(int64_t rotated, float theta);
  static RopeTable Yarn(int64_t rotated, float theta, const YarnScaling& yarn);

  std::span<const float> inv_freq() const { return inv_freq_; }
  int64_t pairs() const { return static_cast<int64_t>(inv_freq_.size()); }

  // cos and sin [pairs] of the float32 angles float(position) * inv_freq[i].
  void At(int64_t position, float* cos, float* sin) const;

 private:
  std::vector<float> inv_freq_;
};

// (a, b) -> (a cos - b sin, a sin + b cos) for each adjacent pair of x[0 .. 2 * pairs).
void Rotate(float* x, const float* cos, const float* sin, int64_t pairs);

// The inverse rotation: sin negated.
void RotateBack(float* x, const float* cos, const float* sin, int64_t pairs);

}  // namespace millrace::kernels
