#include "kernels/router.h"

#include <cmath>

namespace millrace::kernels {
namespace {

float Softplus(float z) {
  return z > 20.0f ? z : std::log1p(std::exp(z));
}

}  // namespace

void RouterScores(float* z, int64_t n_experts, float gate_temp) {
  for (int64_t e = 0; e < n_experts; ++e) z[e] = std::sqrt(Softplus(z[e] / gate_temp));
}

void ChooseExperts(const float* scores, const float* bias, int64_t n_experts, int64_t k, float scaling,
                   int32_t* experts, float* weights) {
  // Insertion into a short sorted list; weights hold the biased scores meanwhile.
  int64_t n = 0;
  for (int64_t e = 0; e < n_experts; ++e) {
    const float biased = scores[e] + bias[e];
    if (n == k && !(biased > weights[k - 1])) continue;
    int64_t at = n < k ? n++ : k - 1;
    for (; at > 0 && biased > weights[at - 1]; --at) {
      weights[at] = weights[at - 1];
      experts[at] = experts[at - 1];
    }
    weights[at] = biased;
    experts[at] = static_cast<int32_t>(e);
  }
  float sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += scores[experts[i]];
  for (int64_t i = 0; i < k; ++i) weights[i] = scaling * scores[experts[i]] / (sum + 1e-20f);
}

}  // namespace millrace::kernels
