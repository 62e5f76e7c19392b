// MatMul over any row decoder. Included once per instruction set by each weight format's source file.

#if defined(MILLRACE_KERNELS_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_MATMUL_INL_H_
#undef MILLRACE_KERNELS_MATMUL_INL_H_
#else
#define MILLRACE_KERNELS_MATMUL_INL_H_
#endif

#include <algorithm>

#include "kernels/dot_tile-inl.h"
#include "kernels/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// Multiplies with the rows that `decode(row, scratch)` returns as float pointers: into `scratch`, or where
// the row already lies as floats.
template <typename Decode>
HWY_INLINE void MatMulRows(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x,
                           int64_t n_tokens, float* y, int64_t y_stride, float* scratch,
                           const Decode& decode) {
  const auto cols = static_cast<size_t>(a.cols);
  for (int64_t panel = row_begin; panel < row_end; panel += kPanelRows) {
    const auto rows = static_cast<size_t>(std::min(kPanelRows, row_end - panel));
    const float* first = decode(panel, scratch);
    for (size_t r = 1; r < rows; ++r) decode(panel + static_cast<int64_t>(r), scratch + r * cols);
    for (int64_t t0 = 0; t0 < n_tokens; t0 += static_cast<int64_t>(kTileTokens)) {
      const float* tokens[kTileTokens];
      const size_t n = HWY_MIN(kTileTokens, static_cast<size_t>(n_tokens - t0));
      for (size_t t = 0; t < n; ++t) {
        const int64_t token = t0 + static_cast<int64_t>(t);
        tokens[t] = x.base + (x.index != nullptr ? x.index[token] : token) * x.stride;
      }
      DotBlock(first, cols, rows, tokens, n, cols, [&](size_t t, size_t r, float value) {
        y[(t0 + static_cast<int64_t>(t)) * y_stride + panel + static_cast<int64_t>(r)] = value;
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
