#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace::kernels {
namespace {

// Each operation rounds to float32, in this order.
float InvFreq(int64_t pair, int64_t rotated, float theta) {
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(rotated);
  return 1.0f / std::pow(theta, exponent);
}

}  // namespace

RopeTable RopeTable::Plain(int64_t rotated, float theta) {
  RopeTable table;
  for (int64_t i = 0; i < rotated / 2; ++i) table.inv_freq_.push_back(InvFreq(i, rotated, theta));
  return table;
}

RopeTable RopeTable::Yarn(int64_t rotated, float theta, const YarnScaling& yarn) {
  // The channel at which a rotation makes n turns over the original context.
  const auto channel_of_turns = [&](double n) {
    return static_cast<double>(rotated) *
           std::log(static_cast<double>(yarn.original_max_position_embeddings) / (2 * std::numbers::pi * n)) /
           (2 * std::log(static_cast<double>(theta)));
  };
  const double low = std::max(std::floor(channel_of_turns(yarn.beta_fast)), 0.0);
  const double high = std::min(std::ceil(channel_of_turns(yarn.beta_slow)), static_cast<double>(rotated - 1));
  // Equal ends would divide by zero; the ramp is then a step.
  const double width = high > low ? high - low : 0.001;
  const auto factor = static_cast<float>(yarn.factor);
  RopeTable table;
  for (int64_t i = 0; i < rotated / 2; ++i) {
    const float freq = InvFreq(i, rotated, theta);
    const auto ramp = std::clamp(static_cast<float>((static_cast<double>(i) - low) / width), 0.0f, 1.0f);
    table.inv_freq_.push_back((freq / factor) * ramp + freq * (1.0f - ramp));
  }
  return table;
}

void RopeTable::At(int64_t position, float* cos, float* sin) const {
  for (size_t i = 0; i < inv_freq_.size(); ++i) {
    // The angle is one float32 product; its cosine and sine are then formed in float64 and rounded once.
    const float angle = static_cast<float>(position) * inv_freq_[i];
    cos[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    sin[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

void Rotate(float* x, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = a * sin[i] + b * cos[i];
  }
}

void RotateBack(float* x, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cos[i] + b * sin[i];
    x[2 * i + 1] = b * cos[i] - a * sin[i];
  }
}

}  // namespace millrace::kernels
