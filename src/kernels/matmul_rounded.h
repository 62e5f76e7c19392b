#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/matmul.h"

// Products of fp8 matrices in `fast` numerics: activations rounded to bfloat16, which some processors
// multiply twice as fast as float32.
namespace millrace::kernels {

// Whether MatMulRounded can multiply with it: an fp8 matrix that is ordinary and whose scales are 2^-50 ..
// 2^50, so far from the ends of float32's range that no product or sum comes near them. Reads the scales.
bool CanRoundInputs(const WeightMatrix& a);

// Rounds channels [begin, end) of a vector, multiples of 32, into the same channels of `out`, which has room
// for as many floats as the vector has channels. How they lie there is for MatMulRounded only, and for the
// instruction set that is in use; a whole vector may be rounded in its own place.
//
// To the nearest bfloat16, ties to even. Magnitudes below 2^-60 become zero, those above 2^50 and whatever is
// not finite become NaN; the logits show it.
void RoundInputs(const float* x, int64_t begin, int64_t end, float* out);

// Rounded vectors: that of token t starts at base + (index ? index[t] : t) * stride.
struct RoundedRows {
  const float* base = nullptr;
  int64_t stride = 0;
  const int32_t* index = nullptr;
};

// y[t * y_stride + o] = A[o] . x[t] for t in [0, n_tokens), o in [row_begin, row_end); A.rounds_inputs.
//
// The order of accumulation is part of the contract. Partial sum l of sixteen takes columns 2 l + 1 and then
// 2 l of every block of 32 columns, blocks in rising order, with one fused multiply-add each; the sums are
// added as MatMul adds them. Weights with their scales are exact, and so, with inputs as RoundInputs leaves
// them, are products; no sum can be subnormal. That is what the instruction vdpbf16ps does, which flushes
// subnormals, and what others do in two multiply-adds: the result depends neither on the batch, nor the row
// range, nor the instruction set.
//
// `scratch` as for MatMul.
void MatMulRounded(const WeightMatrix& a, int64_t row_begin, int64_t row_end, const RoundedRows& x,
                   int64_t n_tokens, float* y, int64_t y_stride, std::span<float> scratch);

// Whether this machine multiplies pairs of bfloat16 (vdpbf16ps) in the order above; tried out at first use.
bool HasBf16Pairs();

// The same, and the instruction set in use has it. What RoundInputs rounded before a change is lost.
bool UsesBf16Pairs();
void AllowBf16Pairs(bool allowed);

}  // namespace millrace::kernels
