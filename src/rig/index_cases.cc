#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/index_score.h"
#include "kernels/index_score_ref.h"
#include "kernels/peak_loops.h"
#include "kernels/quantize.h"
#include "kernels/top_k.h"
#include "rig/kernel_cases.h"
#include "rig/matrix_copies.h"
#include "rig/verify.h"

namespace millrace::rig {
namespace {

constexpr int64_t kHeads = 32;
constexpr int64_t kDim = 128;
constexpr int64_t kTopK = 512;
constexpr int64_t kKeys = 262144;
constexpr float kScale = 0.088388346f;
// As the forward pass cuts them (model/indexer.cc): what is scored at a time, a page, tokens of a prompt that
// share a decoded key.
constexpr int64_t kBlockKeys = 1024;
constexpr int64_t kPageKeys = 256;
constexpr int64_t kMostQueries = 4;

// Normally distributed vectors [n, kDim] as caches hold them.
struct Fp4Vectors {
  Fp4Vectors(int64_t n, uint64_t seed)
      : codes(static_cast<size_t>(n * kDim / 2)), scales(static_cast<size_t>(n * kDim / 32)) {
    const kernels::AlignedVector<float> values = RandomActivations(n * kDim, seed);
    kernels::QuantizeQ4a(values.data(), n * kDim, codes.data(), scales.data());
  }
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
};

// The search of one index source for one or more tokens: all scores and the best 512 of them.
class IndexSearch {
 public:
  IndexSearch(int64_t n_queries, Team& team)
      : team_(team),
        n_queries_(n_queries),
        q_(kHeads, 21),
        weights_(RandomActivations(kHeads, 22)),
        keys_(kKeys, 23),
        query_memory_(static_cast<size_t>(n_queries) * kernels::IndexQuery::BytesFor(kHeads, kDim)),
        tiles_(static_cast<size_t>(team.size()) * TileStride()),
        scores_(static_cast<size_t>(team.size() * kMostQueries * kBlockKeys)) {
    const size_t bytes = kernels::IndexQuery::BytesFor(kHeads, kDim);
    for (int64_t i = 0; i < n_queries; ++i) {
      queries_.emplace_back(query_memory_.bytes().subspan(static_cast<size_t>(i) * bytes, bytes), kHeads,
                            kDim);
      queries_.back().Assign(q_.codes.data(), q_.scales.data(), weights_.data(), kScale);
    }
    found_.resize(static_cast<size_t>(team.size() * n_queries),
                  std::vector<kernels::Scored>(kernels::RunningTopK::CapacityFor(kTopK)));
    for (std::vector<kernels::Scored>& buffer : found_) best_.emplace_back(buffer, kTopK);
  }
  IndexSearch(const IndexSearch&) = delete;
  IndexSearch& operator=(const IndexSearch&) = delete;

  double Operations() const { return 2.0 * static_cast<double>(n_queries_) * kHeads * kDim * kKeys; }

  // A slice of the keys for each thread.
  void Run() {
    const int64_t n_slices = team_.size();
    team_.pool().ParallelFor(static_cast<size_t>(n_slices), [&](size_t task, int worker) {
      const auto slice = static_cast<int64_t>(task);
      for (int64_t i = 0; i < n_queries_; ++i) Best(slice, i).Reset();
      const int64_t blocks = kKeys / kBlockKeys;
      for (int64_t b = blocks * slice / n_slices; b < blocks * (slice + 1) / n_slices; ++b) {
        const std::span<float> scores = Score(b * kBlockKeys, worker);
        for (int64_t i = 0; i < n_queries_; ++i) {
          Best(slice, i).PushAll(
              scores.subspan(static_cast<size_t>(i * kBlockKeys), kBlockKeys),
              [b](size_t j) { return static_cast<int32_t>(b * kBlockKeys + static_cast<int64_t>(j)); });
        }
      }
    });
  }

  Status Verify() {
    for (const int64_t j : {int64_t{0}, kKeys / 3, kKeys - 1}) {
      const float expected = kernels::ref::IndexScore(q_.codes.data(), q_.scales.data(), weights_.data(),
                                                      kHeads, kDim, keys_.codes.data() + j * kDim / 2,
                                                      keys_.scales.data() + j * kDim / 32, kScale);
      const std::span<float> scores = Score(j / kBlockKeys * kBlockKeys, 0);
      MILLRACE_RETURN_IF_ERROR(
          ExpectSameBits(scores[static_cast<size_t>((n_queries_ - 1) * kBlockKeys + j % kBlockKeys)],
                         expected, fmt::format("index score {}", j)));
    }
    return {};
  }

 private:
  static size_t TileStride() { return (kernels::IndexScoreScratchBytes(kDim) + 63) / 64 * 64; }
  kernels::RunningTopK& Best(int64_t slice, int64_t query) {
    return best_[static_cast<size_t>(slice * n_queries_ + query)];
  }

  // Scores of keys first .. first + kBlockKeys - 1: [queries, kBlockKeys].
  std::span<float> Score(int64_t first, int worker) {
    kernels::IndexKeys runs[kBlockKeys / kPageKeys];
    for (int64_t r = 0; r < kBlockKeys / kPageKeys; ++r) {
      const int64_t key = first + r * kPageKeys;
      runs[r] = {.codes = keys_.codes.data() + key * kDim / 2,
                 .scales = keys_.scales.data() + key * kDim / 32,
                 .n = kPageKeys};
    }
    const std::span<float> scores = std::span(scores_).subspan(
        static_cast<size_t>(worker * kMostQueries * kBlockKeys), kMostQueries * kBlockKeys);
    kernels::IndexScores(queries_, runs, scores.data(), kBlockKeys,
                         tiles_.bytes().subspan(static_cast<size_t>(worker) * TileStride(), TileStride()));
    return scores;
  }

  Team& team_;
  int64_t n_queries_;
  Fp4Vectors q_;
  kernels::AlignedVector<float> weights_;
  Fp4Vectors keys_;
  HugeBuffer query_memory_;
  HugeBuffer tiles_;
  kernels::AlignedVector<float> scores_;
  std::vector<kernels::IndexQuery> queries_;
  std::vector<std::vector<kernels::Scored>> found_;
  std::vector<kernels::RunningTopK> best_;
};

}  // namespace

Result<std::vector<BenchRow>> IndexScoring(KernelBench& bench) {
  std::vector<BenchRow> rows;
  for (const int64_t n_queries : {int64_t{1}, kMostQueries}) {
    IndexSearch search(n_queries, bench.team);
    MILLRACE_RETURN_IF_ERROR(search.Verify());
    const Contestant contestants[] = {
        {.run = [&] { search.Run(); }, .work = search.Operations(), .team = &bench.team},
        bench.limits.Int8(bench.team)};
    BenchRow row{.name = "index",
                 .shape = fmt::format("{} tokens, {} heads x {}, {} keys, best {}", n_queries, kHeads, kDim,
                                      kKeys, kTopK),
                 .instruction_set = kernels::Int8InstructionSet(),
                 .threads = bench.team.size(),
                 .unit = "Gop/s",
                 .limit_name = "int8 peak"};
    row.Take(TimeInTurn(contestants), 1e9);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace millrace::rig
