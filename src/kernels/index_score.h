#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/index_query.h"

namespace millrace::kernels {

// Index keys as caches hold them (shared/spec/v41-text.md, sections 3.3 and 5.4): Q4a codes [n, dim / 2] and
// scales [n, dim / 32], contiguous.
struct IndexKeys {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  int64_t n = 0;
};

// Bytes of scratch that IndexScores needs.
size_t IndexScoreScratchBytes(int64_t dim);

// For every query i and every key j, counted through all runs of `keys` in order,
//   scores[i * stride + j] = sum_h weights[h] * scale * max(q_h . key_j, 0)
// (shared/spec/v41-text.md, section 5.5). All queries have one shape. `scratch` holds
// IndexScoreScratchBytes(dim) bytes, aligned to 64, private to the calling thread.
//
// How a score comes about is part of the contract; no other query, key or run influences it. Twice an e2m1
// value is an integer, so the products of a block of 32 sum to an exact integer I_b. With E the largest scale
// code of a head, F that of the key, and e_b, f_b those of block b:
//   dot   = fma(I_b * 2^(3 + f_b - F), 2^(3 + e_b - E), dot) over the blocks in rising order
//   sum   = fma(max(dot, 0), ((weights[h] * scale) * 2^-8) * ue8m0(E), sum) over the heads in rising order
//   score = sum * ue8m0(F)
// A power below 2^-126 counts as zero. While the scales of a head, and those of the key, differ by at most
// 2^3 (and dim is at most 1024), dot is the exact product of head and key (times 2^8 / (ue8m0(E) ue8m0(F))),
// as is then a float32 sum in any order.
void IndexScores(std::span<const IndexQuery> queries, std::span<const IndexKeys> keys, float* scores,
                 int64_t stride, std::span<std::byte> scratch);

}  // namespace millrace::kernels
