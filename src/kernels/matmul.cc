#include "kernels/matmul.h"

#include "base/check.h"
#include "kernels/align.h"
#include "kernels/matmul_formats.h"

namespace millrace::kernels {
void MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
            float* y, int64_t y_stride, std::span<float> scratch) {
  MILLRACE_CHECK(a.cols % 32 == 0, "matrix columns are padded to blocks of 32 nowhere");
  MILLRACE_CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= a.rows, "row range outside the matrix");
  MILLRACE_CHECK(scratch.size() >= MatMulScratchFloats(a.cols), "matmul scratch smaller than announced");
  if (n_tokens == 0) return;
  float* const aligned = AlignToCacheLine(scratch.data());
  switch (a.format) {
    case WeightFormat::kF32:
      return MatMulF32(a, row_begin, row_end, x, n_tokens, y, y_stride, aligned);
    case WeightFormat::kBf16:
      return MatMulBf16(a, row_begin, row_end, x, n_tokens, y, y_stride, aligned);
    case WeightFormat::kFp8Tile32:
      return MatMulFp8Tile32(a, row_begin, row_end, x, n_tokens, y, y_stride, aligned);
    case WeightFormat::kFp4Row32:
      return MatMulFp4Row32(a, row_begin, row_end, x, n_tokens, y, y_stride, aligned);
  }
}

bool IsOrdinary(const WeightMatrix& a) {
  return a.format != WeightFormat::kFp8Tile32 || IsOrdinaryFp8Tile32(a);
}

void DecodeRow(const WeightMatrix& a, int64_t row, float* out) {
  switch (a.format) {
    case WeightFormat::kF32:
      return DecodeRowF32(a, row, out);
    case WeightFormat::kBf16:
      return DecodeRowBf16(a, row, out);
    case WeightFormat::kFp8Tile32:
      return DecodeRowFp8Tile32(a, row, out);
    case WeightFormat::kFp4Row32:
      return DecodeRowFp4Row32(a, row, out);
  }
}

}  // namespace millrace::kernels
