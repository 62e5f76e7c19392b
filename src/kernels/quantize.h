#pragma once

#include <cstdint>

// The model's activation quantisers (shared/spec/v41-text.md, section 3.3) and their inverses. Codes and
// scales are what caches hold; dequantising gives the values the model computes with, exactly. Arithmetic is
// float32.
namespace millrace::kernels {

// Q8: blocks of 32, e4m3 codes [n], ue8m0 scales [n / 32]. n is a multiple of 32.
void QuantizeQ8(const float* x, int64_t n, uint8_t* codes, uint8_t* scales);
void DequantizeQ8(const uint8_t* codes, const uint8_t* scales, int64_t n, float* out);

// Q4a: blocks of 32, e2m1 codes two a byte (even channel low) [n / 2], ue8m0 scales [n / 32]. n is a multiple
// of 32.
void QuantizeQ4a(const float* x, int64_t n, uint8_t* codes, uint8_t* scales);
void DequantizeQ4a(const uint8_t* codes, const uint8_t* scales, int64_t n, float* out);

// Q4b: blocks of 16, e2m1 codes two a byte [n / 2], e4m3 scales [n / 16]. n is a multiple of 16.
void QuantizeQ4b(const float* x, int64_t n, uint8_t* codes, uint8_t* scales);
void DequantizeQ4b(const uint8_t* codes, const uint8_t* scales, int64_t n, float* out);

}  // namespace millrace::kernels
