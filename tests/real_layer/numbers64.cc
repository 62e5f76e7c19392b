#include "real_layer/numbers64.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/codecs.h"

namespace millrace::real_layer {
namespace {

constexpr int64_t kRowsDecoded = 32;  // at a time
constexpr int64_t kRowsTogether = 4;  // share the loads of x

// out[r] = w[r] . x for four consecutive rows of `w` [4, n].
void DotRows(const double* w, const double* x, int64_t n, double* out) {
  constexpr int64_t kLanes = 4;
  double sum[kRowsTogether][kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t r = 0; r < kRowsTogether; ++r)
      for (int64_t lane = 0; lane < kLanes; ++lane) sum[r][lane] += w[r * n + i + lane] * x[i + lane];
  for (int64_t r = 0; r < kRowsTogether; ++r) {
    out[r] = sum[r][0] + sum[r][1] + sum[r][2] + sum[r][3];
    for (int64_t rest = i; rest < n; ++rest) out[r] += w[r * n + rest] * x[rest];
  }
}

// Rows [row, row_end), at most kRowsDecoded, of a matrix product.
void MultiplyRows(const Matrix64& a, const Rows64& x, const MatMulPart& part, int64_t row, int64_t row_end,
                  std::span<const double> input_error, std::vector<double>& buffer, Rows64& y) {
  const int64_t cols = a.cols();
  // The last rows of a group of four may be left over from before: their products are not used.
  buffer.resize(static_cast<size_t>(kRowsDecoded * cols));
  double norm[kRowsDecoded];
  for (int64_t r = row; r < row_end; ++r) {
    double* w = buffer.data() + (r - row) * cols;
    a.DecodeRow(r, w);
    norm[r - row] = Norm(w, cols);
  }
  for (int64_t t = 0; t < x.n; ++t) {
    for (int64_t r = row; r < row_end; r += kRowsTogether) {
      double dots[kRowsTogether];
      DotRows(buffer.data() + (r - row) * cols, x.values(t) + part.col_begin, cols, dots);
      for (int64_t i = r; i < std::min(row_end, r + kRowsTogether); ++i) {
        y.values(t)[i - part.row_begin] = dots[i - r];
        y.errors(t)[i - part.row_begin] = norm[i - row] * input_error[static_cast<size_t>(t)];
      }
    }
  }
}

std::vector<float> PlainFrequencies(int64_t channels, double theta) {
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < channels / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(channels);
    inv_freq.push_back(1.0f / std::pow(static_cast<float>(theta), exponent));
  }
  return inv_freq;
}

// The smallest power of two >= t, from the bits of the positive float.
float PowerOfTwoAtLeast(float t) {
  const uint32_t bits = std::bit_cast<uint32_t>(t);
  const int exponent = static_cast<int>(bits >> 23) - 127 + ((bits & 0x7FFFFFu) != 0 ? 1 : 0);
  return std::ldexp(1.0f, exponent);
}

double E4m3Rounded(double x) {
  return E4m3ToFloat(FloatToE4m3(static_cast<float>(std::clamp(x, -448.0, 448.0))));
}

double E2m1Rounded(double x) {
  return E2m1ToFloat(FloatToE2m1(static_cast<float>(std::clamp(x, -6.0, 6.0))));
}

// Distance from a code's value to its farther neighbour.
double E4m3Step(double value) {
  return std::max(std::fabs(value) / 8, 0x1p-9);
}
double E2m1Step(double value) {
  const double a = std::fabs(value);
  return a >= 4 ? 2 : a >= 2 ? 1 : 0.5;
}

// Blocks of `block` channels; scale(largest magnitude of the block) and the grid of the scaled values.
template <typename Scale>
Quantised Quantise(const Rows64& x, int64_t block, Scale scale, double (*round)(double),
                   double (*step)(double)) {
  Quantised out{.n = x.n, .width = x.width, .value = x.value, .step = x.value};
  for (size_t begin = 0; begin < x.value.size(); begin += static_cast<size_t>(block)) {
    const size_t end = begin + static_cast<size_t>(block);
    double largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x.value[i]));
    const double s = scale(static_cast<float>(largest));
    for (size_t i = begin; i < end; ++i) {
      const double code = round(x.value[i] / s);
      out.value[i] = code * s;
      out.step[i] = step(code) * s;
    }
  }
  return out;
}

}  // namespace

double Dot(const double* a, const double* b, int64_t n) {
  double sum[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int64_t lane = 0; lane < 4; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

double Norm(const double* x, int64_t n) {
  return std::sqrt(Dot(x, x, n));
}

Rows64 MatMul(const Matrix64& a, const Rows64& x, const MatMulPart& part, ThreadPool& pool) {
  Require(part.col_begin + a.cols() <= x.width, "the input is narrower than the matrix");
  Rows64 y(x.n, part.row_end - part.row_begin);
  std::vector<double> input_error;
  for (int64_t t = 0; t < x.n; ++t) {
    const double rms_error =
        Norm(x.errors(t) + part.col_begin, a.cols()) / std::sqrt(static_cast<double>(a.cols()));
    input_error.push_back(kU * Norm(x.values(t) + part.col_begin, a.cols()) + rms_error);
  }
  std::vector<std::vector<double>> buffers(static_cast<size_t>(pool.size()));
  const int64_t tasks = (y.width + kRowsDecoded - 1) / kRowsDecoded;
  pool.ParallelFor(static_cast<size_t>(tasks), [&](size_t task, int worker) {
    const int64_t row = part.row_begin + static_cast<int64_t>(task) * kRowsDecoded;
    MultiplyRows(a, x, part, row, std::min(part.row_end, row + kRowsDecoded), input_error,
                 buffers[static_cast<size_t>(worker)], y);
  });
  return y;
}

Rows64 MatMul(const Matrix64& a, const Rows64& x, ThreadPool& pool) {
  Require(a.cols() == x.width, "matrix and input differ in width");
  return MatMul(a, x, {.row_begin = 0, .row_end = a.rows(), .col_begin = 0}, pool);
}

void RmsNorm(Rows64& x, std::span<const double> gain, double eps) {
  for (int64_t t = 0; t < x.n; ++t) {
    double* value = x.values(t);
    double* error = x.errors(t);
    const double norm = Norm(value, x.width);
    const double scale = 1 / std::sqrt(norm * norm / static_cast<double>(x.width) + eps);
    const double relative = 8 * kU + (norm > 0 ? Norm(error, x.width) / norm : 0);
    for (int64_t i = 0; i < x.width; ++i) {
      const double g = scale * (gain.empty() ? 1 : gain[static_cast<size_t>(i)]);
      value[i] *= g;
      error[i] = std::fabs(g) * error[i] + relative * std::fabs(value[i]);
    }
  }
}

double Sigmoid(double z) {
  return 1 / (1 + std::exp(-z));
}

Rope64::Rope64(int64_t channels, double theta) : inv_freq_(PlainFrequencies(channels, theta)) {}

Rope64::Rope64(int64_t channels, double theta, const RopeScaling64& yarn) : Rope64(channels, theta) {
  const auto dims = static_cast<double>(channels);
  const auto correction = [&](double rotations) {
    return dims * std::log(yarn.original_positions / (2 * std::numbers::pi * rotations)) /
           (2 * std::log(theta));
  };
  const double low = std::max(std::floor(correction(yarn.beta_fast)), 0.0);
  const double high = std::min(std::ceil(correction(yarn.beta_slow)), dims - 1);
  for (size_t i = 0; i < inv_freq_.size(); ++i) {
    const float f = inv_freq_[i];
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float slowed = f / static_cast<float>(yarn.factor) * ramp;
    inv_freq_[i] = slowed + f * (1.0f - ramp);
  }
}

void Rope64::Rotate(Rows64& x, int64_t head_width, std::span<const int64_t> positions, bool backwards) const {
  const auto pairs = static_cast<int64_t>(inv_freq_.size());
  for (int64_t t = 0; t < x.n; ++t) {
    for (int64_t i = 0; i < pairs; ++i) {
      const float angle =
          static_cast<float>(positions[static_cast<size_t>(t)]) * inv_freq_[static_cast<size_t>(i)];
      const double c = std::cos(double{angle});
      const double s = backwards ? -std::sin(double{angle}) : std::sin(double{angle});
      for (int64_t at = head_width - 2 * pairs + 2 * i; at < x.width; at += head_width) {
        double* v = x.values(t) + at;
        double* e = x.errors(t) + at;
        const double a = v[0], b = v[1];
        const double ea = e[0], eb = e[1];
        const double rounding = 4 * kU * (std::fabs(a) + std::fabs(b));
        v[0] = a * c - b * s;
        v[1] = a * s + b * c;
        e[0] = std::fabs(c) * ea + std::fabs(s) * eb + rounding;
        e[1] = std::fabs(s) * ea + std::fabs(c) * eb + rounding;
      }
    }
  }
}

Quantised Q8(const Rows64& x) {
  return Quantise(
      x, 32, [](float largest) { return PowerOfTwoAtLeast(std::max(largest, 1e-4f) * (1.0f / 448.0f)); },
      E4m3Rounded, E4m3Step);
}

Quantised Q4a(const Rows64& x) {
  return Quantise(
      x, 32,
      [](float largest) { return PowerOfTwoAtLeast(std::max(largest, 6 * 0x1p-126f) * (1.0f / 6.0f)); },
      E2m1Rounded, E2m1Step);
}

Quantised Q4b(const Rows64& x) {
  return Quantise(
      x, 16, [](float largest) { return E4m3Rounded(std::max(largest, 6 * 0x1p-9f) / 6.0f); }, E2m1Rounded,
      E2m1Step);
}

}  // namespace millrace::real_layer
