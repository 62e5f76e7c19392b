#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "real_layer/weights64.h"

// Float64 arithmetic that knows how far float32 may be off.
//
// Every number carries `error`: a float32 evaluation of the same formula, in whatever order, is expected
// within it. It is a first-order estimate in which rounding errors are independent, not a worst case, because
// the worst case through three matrices in a row says nothing. With u = 2^-24:
//   - a dot product w . x errs by about u sqrt(n) |w o x| / 6; Cauchy's bound on u sum |w_i x_i|, which is
//     u |w| |x|, stands for it: it grows with sqrt(n) in the same way and leaves a factor of about ten;
//   - independent errors e of x come through as sqrt(sum w_i^2 e_i^2), about |w| rms(e).
// A misplaced row or stride changes results by as much as they are large, 10^4 to 10^6 times `error`; a
// single one of wq_b's 40,960 scales taken from its neighbour changes the attention's output by 10^3 times
// it.
namespace millrace::real_layer {

inline constexpr double kU = 0x1p-24;

// [n, width], row-major.
struct Rows64 {
  Rows64() = default;
  Rows64(int64_t rows, int64_t row_width)
      : n(rows),
        width(row_width),
        value(static_cast<size_t>(rows * row_width)),
        error(static_cast<size_t>(rows * row_width)) {}

  double* values(int64_t row) { return value.data() + row * width; }
  const double* values(int64_t row) const { return value.data() + row * width; }
  double* errors(int64_t row) { return error.data() + row * width; }
  const double* errors(int64_t row) const { return error.data() + row * width; }

  int64_t n = 0;
  int64_t width = 0;
  std::vector<double> value;
  std::vector<double> error;
};

double Norm(const double* x, int64_t n);  // sqrt of the sum of squares
double Dot(const double* a, const double* b, int64_t n);

// y[t][o - row_begin] = A[o] . x[t][col_begin .. col_begin + A.cols) for o in [row_begin, row_end).
struct MatMulPart {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t col_begin = 0;
};
Rows64 MatMul(const Matrix64& a, const Rows64& x, const MatMulPart& part, ThreadPool& pool);
// All rows.
Rows64 MatMul(const Matrix64& a, const Rows64& x, ThreadPool& pool);

// Every row: x / sqrt(mean(x^2) + eps), times `gain` unless that is empty.
void RmsNorm(Rows64& x, std::span<const double> gain, double eps);

double Sigmoid(double z);

// Rotary angles of one table (section 7): float32, as the specification asks; their cosines in float64.
struct RopeScaling64 {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  double original_positions = 0;
};
class Rope64 {
 public:
  Rope64(int64_t channels, double theta);
  Rope64(int64_t channels, double theta, const RopeScaling64& yarn);

  // Rotates the last channels of every `head_width` wide vector of row t by positions[t]; backwards: by its
  // inverse.
  void Rotate(Rows64& x, int64_t head_width, std::span<const int64_t> positions,
              bool backwards = false) const;

 private:
  std::vector<float> inv_freq_;
};

// What a quantiser makes of rows: the value, and the distance to the farther of its two neighbours on the
// block's grid.
struct Quantised {
  int64_t n = 0;
  int64_t width = 0;
  std::vector<double> value;
  std::vector<double> step;
};
Quantised Q8(const Rows64& x);
Quantised Q4a(const Rows64& x);
Quantised Q4b(const Rows64& x);

}  // namespace millrace::real_layer
