#pragma once

#include <cstdint>

namespace millrace::kernels {

// The router's scores in place: z -> sqrt(softplus(z / gate_temp)) (shared/spec/v41-text.md, section 5.6,
// step 1).
void RouterScores(float* z, int64_t n_experts, float gate_temp);

// Steps 2 and 3: the k experts with the largest score + bias, in descending order of it, the lowest index
// first on ties; weights[i] = scaling * score / (sum of the chosen scores + 1e-20). experts and weights are
// [k].
void ChooseExperts(const float* scores, const float* bias, int64_t n_experts, int64_t k, float scaling,
                   int32_t* experts, float* weights);

}  // namespace millrace::kernels
