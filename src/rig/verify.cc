#include "rig/verify.h"

#include <fmt/format.h>

#include <bit>

#include "kernels/matmul_int8_ref.h"
#include "kernels/matmul_ref.h"
#include "kernels/matmul_rounded_ref.h"

namespace millrace::rig {

Status ExpectSameBits(float actual, float expected, std::string_view what) {
  if (std::bit_cast<uint32_t>(actual) == std::bit_cast<uint32_t>(expected)) return {};
  return Error(ErrorCode::kMismatch,
               fmt::format("{} is {:.9g}, its plain reference gives {:.9g}; nothing was timed", what, actual,
                           expected));
}

Status VerifyProduct(const Product& product, std::string_view what) {
  const int64_t rows = product.a->rows;
  for (const int64_t t : {int64_t{0}, product.n_tokens / 2, product.n_tokens - 1}) {
    for (const int64_t row : {int64_t{0}, int64_t{33}, rows / 2 + 1, rows - 1}) {
      float expected = 0;
      if (product.codes != nullptr) {
        const kernels::QuantizedRows& x = *product.codes;
        const int64_t from = x.index != nullptr ? x.index[t] : t;
        expected =
            kernels::ref::RowDotInt8(*product.a, row, x.base + from * kernels::QuantizedGroups(x.cols));
      } else {
        const int64_t from = product.x.index != nullptr ? product.x.index[t] : t;
        const auto dot = product.rounded != nullptr ? kernels::ref::RowDotRounded : kernels::ref::RowDot;
        expected = dot(*product.a, row, product.x.base + from * product.x.stride);
      }
      MILLRACE_RETURN_IF_ERROR(ExpectSameBits(product.y[t * product.y_stride + row], expected,
                                              fmt::format("{}: row {} of token {}", what, row, t)));
    }
  }
  return {};
}

}  // namespace millrace::rig
