#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_fp8.cc"
#include "kernels/targets_int8_dot.h"
// After it: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/fp8_row-inl.h"
#include "kernels/matmul-inl.h"
#include "kernels/matmul_formats.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

bool Fp8Tile32IsOrdinary(const WeightMatrix& a) {
  const auto* scales = reinterpret_cast<const uint8_t*>(a.scales);
  const int64_t n_scales = (a.rows + 31) / 32 * (a.cols / 32);
  if (std::any_of(scales, scales + n_scales, [](uint8_t code) { return code > kLargestScaleTimes256; }))
    return false;
  const hn::CappedTag<uint8_t, 32> d8;  // a.cols is a multiple of 32
  const auto magnitude = hn::Set(d8, uint8_t{0x7F});
  auto largest = hn::Zero(d8);
  const auto* codes = reinterpret_cast<const uint8_t*>(a.data);
  for (const uint8_t* end = codes + a.rows * a.cols; codes < end; codes += hn::Lanes(d8))
    largest = hn::Max(largest, hn::And(hn::LoadU(d8, codes), magnitude));
  return hn::AllFalse(d8, hn::Eq(largest, magnitude));
}

void Fp8Tile32Decode(const WeightMatrix& a, int64_t row, float* out) {
  DecodeInto(Fp8TileRow<Fp8Decoding::kAny>(a, row), 0, static_cast<size_t>(a.cols), out);
}

void Fp8Tile32MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                     float* y, int64_t y_stride, float* scratch) {
  if (a.ordinary) {
    MatMulRows<Fp8TileRow<Fp8Decoding::kOrdinary>>(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
  } else {
    MatMulRows<Fp8TileRow<Fp8Decoding::kAny>>(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(Fp8Tile32MatMul);
HWY_EXPORT(Fp8Tile32Decode);
HWY_EXPORT(Fp8Tile32IsOrdinary);

void MatMulFp8Tile32(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                     float* y, int64_t y_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Fp8Tile32MatMul)(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

bool IsOrdinaryFp8Tile32(const WeightMatrix& a) {
  return HWY_DYNAMIC_DISPATCH(Fp8Tile32IsOrdinary)(a);
}

void DecodeRowFp8Tile32(const WeightMatrix& a, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(Fp8Tile32Decode)(a, row, out);
}

}  // namespace millrace::kernels
#endif
