#pragma once

#include <cstdint>

// Manifold-constrained hyper-connections: M residual streams per token, mixed at every site
// (shared/spec/v41-text.md, section 5.1).
namespace millrace::kernels {

struct HyperConnectionParams {
  int64_t streams = 0;  // M, at most kMaxStreams
  int64_t sinkhorn_iters = 0;
  float eps = 0;
  const float* base = nullptr;   // [(2 + M) * M]
  const float* scale = nullptr;  // [3]
};

inline constexpr int64_t kMaxStreams = 8;

// Steps 3-5: from the projection m [(2 + M) * M] to pre [M], post [M] and the Sinkhorn-normalised comb [M,
// M].
void HyperConnectionMix(const HyperConnectionParams& params, const float* m, float* pre, float* post,
                        float* comb);

// Step 6: u[d] = sum_j pre[j] * x[j][d], j rising. x is [M, hidden].
void CollapseStreams(const float* x, const float* pre, int64_t streams, int64_t hidden, float* u);

// Step 8, in place, for channels [begin, end): x[k] = post[k] * y + sum_j comb[j][k] * x[j], j rising.
void ExpandStreams(const float* y, const float* post, const float* comb, int64_t streams, int64_t hidden,
                   int64_t begin, int64_t end, float* x);

}  // namespace millrace::kernels
