#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/codecs.h"

// The plain meaning of index_score.h, which the vector code must equal bit for bit.
namespace millrace::kernels::ref {

// 2^(3 + code - largest); zero where that is no normal float32.
inline float IndexBlockFactor(uint8_t code, uint8_t largest) {
  const int exponent = 3 + code - largest + 127;
  return exponent <= 0 ? 0.0f : std::bit_cast<float>(static_cast<uint32_t>(exponent) << 23);
}

inline float IndexHeadWeight(float weight, float scale, uint8_t largest) {
  return weight * scale * 0x1p-8f * E8m0ToFloat(largest);
}

// Twice channel i of an e2m1 vector.
inline int TwiceE2m1At(const uint8_t* codes, int64_t i) {
  const uint8_t pair = codes[i / 2];
  return static_cast<int>(2 * E2m1ToFloat(i % 2 == 0 ? pair & 15 : pair >> 4));
}

// q is codes [n_heads, dim / 2] and scales [n_heads, dim / 32]; the key one row of the same kind.
inline float IndexScore(const uint8_t* q_codes, const uint8_t* q_scales, const float* weights,
                        int64_t n_heads, int64_t dim, const uint8_t* key_codes, const uint8_t* key_scales,
                        float scale) {
  const int64_t n_blocks = dim / 32;
  const uint8_t key_largest = *std::max_element(key_scales, key_scales + n_blocks);
  float sum = 0;
  for (int64_t h = 0; h < n_heads; ++h) {
    const uint8_t* codes = q_codes + h * (dim / 2);
    const uint8_t* scales = q_scales + h * n_blocks;
    const uint8_t largest = *std::max_element(scales, scales + n_blocks);
    float dot = 0;
    for (int64_t b = 0; b < n_blocks; ++b) {
      int block = 0;
      for (int64_t i = b * 32; i < b * 32 + 32; ++i)
        block += TwiceE2m1At(codes, i) * TwiceE2m1At(key_codes, i);
      const float in_key_units = static_cast<float>(block) * IndexBlockFactor(key_scales[b], key_largest);
      dot = std::fma(in_key_units, IndexBlockFactor(scales[b], largest), dot);
    }
    sum = std::fma(std::max(dot, 0.0f), IndexHeadWeight(weights[h], scale, largest), sum);
  }
  return sum * E8m0ToFloat(key_largest);
}

}  // namespace millrace::kernels::ref
