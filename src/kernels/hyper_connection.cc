#include "kernels/hyper_connection.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace millrace::kernels {
namespace {

float Sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

void SoftmaxRow(float* row, int64_t n) {
  const float mx = *std::max_element(row, row + n);
  float sum = 0;
  for (int64_t k = 0; k < n; ++k) {
    row[k] = std::exp(row[k] - mx);
    sum += row[k];
  }
  for (int64_t k = 0; k < n; ++k) row[k] /= sum;
}

void NormaliseRows(float* c, int64_t n, float eps) {
  for (int64_t j = 0; j < n; ++j) {
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) sum += c[j * n + k];
    for (int64_t k = 0; k < n; ++k) c[j * n + k] /= sum + eps;
  }
}

void NormaliseColumns(float* c, int64_t n, float eps) {
  for (int64_t k = 0; k < n; ++k) {
    float sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += c[j * n + k];
    for (int64_t j = 0; j < n; ++j) c[j * n + k] /= sum + eps;
  }
}

}  // namespace

void HyperConnectionMix(const HyperConnectionParams& params, const float* m, float* pre, float* post,
                        float* comb) {
  const int64_t n = params.streams;
  MILLRACE_CHECK(n >= 1 && n <= kMaxStreams, "hc_mult is checked when the layer plan is built");
  for (int64_t j = 0; j < n; ++j) {
    pre[j] = Sigmoid(m[j] * params.scale[0] + params.base[j]) + params.eps;
    post[j] = 2.0f * Sigmoid(m[n + j] * params.scale[1] + params.base[n + j]);
  }
  for (int64_t i = 0; i < n * n; ++i) comb[i] = m[2 * n + i] * params.scale[2] + params.base[2 * n + i];
  for (int64_t j = 0; j < n; ++j) SoftmaxRow(comb + j * n, n);
  for (int64_t i = 0; i < n * n; ++i) comb[i] += params.eps;
  NormaliseColumns(comb, n, params.eps);
  for (int64_t iteration = 1; iteration < params.sinkhorn_iters; ++iteration) {
    NormaliseRows(comb, n, params.eps);
    NormaliseColumns(comb, n, params.eps);
  }
}

}  // namespace millrace::kernels
