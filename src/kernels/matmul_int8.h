#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/matmul.h"

// Products in `fast` numerics: activations rounded to 8 bits, fp4 weights as stored, integer dot products.
namespace millrace::kernels {

// 128 channels of activations, rounded: four blocks of 32, each of codes c in -127 .. 127 and a scale s, so
// that channel i is about 2 * s * c (twice, because the kernel's weights are doubled to be integers).
struct alignas(64) QuantizedGroup {
  int8_t even[64];  // codes of the even channels and of the odd ones: the order in which the low and the high
  int8_t odd[64];   // nibbles of a weight row come
  float scales[4];  // s of each block
  int32_t offsets[4];  // -12 * the sum of the block's codes: makes products with unsigned weights (w + 12)
                       // signed again
  int8_t unused[32];
};

// The groups of a vector of `cols` channels; what the last one has beyond is zero.
constexpr int64_t QuantizedGroups(int64_t cols) {
  return (cols + 127) / 128;
}

// Rounded input vectors: that of token t starts at group (index ? index[t] : t) * QuantizedGroups(cols).
struct QuantizedRows {
  const QuantizedGroup* base = nullptr;
  int64_t cols = 0;
  const int32_t* index = nullptr;
};

// Rounds one vector x[n], n a multiple of 32, into QuantizedGroups(n) groups. Per block: a = max|x|; d = a /
// 127; c = x * (1 / d) to the nearest integer, ties to even; s = d / 2. A block with a < 2^-100 becomes
// zeros. Non-finite input gives a non-finite scale or unspecified codes; the logits show it.
void QuantizeInt8(const float* x, int64_t n, QuantizedGroup* groups);

// The same for one block: x[32] becomes block j of a group, whose other blocks stay as they are.
void QuantizeInt8Block(const float* x, QuantizedGroup& group, int64_t j);

// Floats of scratch that MatMulInt8 needs, for any matrix.
inline constexpr size_t kMatMulInt8ScratchFloats = 8192;

// y[t * y_stride + o] = A[o] . x[t] for t in [0, n_tokens), o in [row_begin, row_end); A in kFp4Row32 and
// A.cols == x.cols.
//
// The order of accumulation is part of the contract: the sum I_b of a block of 32 products is an exact
// integer (twice the e2m1 values are integers), and y = fma(I_b, w_scale_b * s_b, y) over the blocks in
// rising order. It depends neither on the batch, nor the row range, nor the vectors' width. Weight scales are
// finite: the loader checks.
//
// `scratch` holds kMatMulInt8ScratchFloats floats, private to the calling thread.
void MatMulInt8(const WeightMatrix& a, int64_t row_begin, int64_t row_end, const QuantizedRows& x,
                int64_t n_tokens, float* y, int64_t y_stride, std::span<float> scratch);

}  // namespace millrace::kernels
