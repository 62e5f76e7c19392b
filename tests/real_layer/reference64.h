#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/hf_config.h"
#include "real_layer/numbers64.h"

namespace millrace::real_layer {

// Values that are exact where they come from: recorded by the forward pass, or stored.
Rows64 ExactRows(std::span<const std::vector<float>> rows);

// The text backbone module by module in float64, written from shared/spec/v41-text.md alone: it shares with
// the server only the safetensors reader, the config reader and the codecs of single elements. Every function
// takes what its module takes and gives what its module gives, so that each can be compared on its own.
//
// Row t of an input is one token (or entry); l is the layer. For any thread, one call at a time (the pool).
class Reference64 {
 public:
  Reference64(const formats::ModelConfig& config, const StoredWeights& weights, ThreadPool& pool);

  const formats::ModelConfig& config() const { return config_; }
  int64_t ratio(int l) const { return config_.compress_ratios[static_cast<size_t>(l)]; }
  bool OwnsKv(int l) const;
  bool OwnsIndex(int l) const;
  // The nearest source at or before l; l has a compress ratio.
  int KvSource(int l) const;
  int IndexSource(int l) const;
  std::optional<size_t> EngramNumber(int l) const;
  bool PublishesCandidates(int l) const;
  bool UsesCandidates(int l) const;

  // --- streams (5.0, 5.1); `site` is "attn" or "ffn", streams are [n, hc_mult * hidden]
  Rows64 InitialStreams(std::span<const TokenId> ids) const;
  struct Coefficients {
    Rows64 pre;   // [n, hc_mult]
    Rows64 post;  // [n, hc_mult]
    Rows64 comb;  // [n, hc_mult * hc_mult]
  };
  Coefficients Mix(int l, const std::string& site, const Rows64& streams) const;
  Rows64 SiteInput(int l, const std::string& site, const Rows64& streams, const Rows64& pre) const;
  Rows64 Expand(const Rows64& y, const Rows64& post, const Rows64& comb, const Rows64& streams) const;
  Rows64 FinalNorm(const Rows64& streams, const Rows64& pre) const;
  Rows64 Logits(const Rows64& final_norm) const;

  // --- engram (5.2): gates [n, hc_mult] and the streams after the write
  std::pair<Rows64, Rows64> Engram(int l, const Rows64& streams,
                                   std::span<const std::vector<int64_t>> table_rows) const;

  // --- attention (5.3 to 5.5); x is the site's input
  Quantised WindowKv(int l, const Rows64& x, std::span<const int64_t> positions) const;
  // x holds positions 0 .. n-1; one row for each complete group.
  Rows64 Latents(int l, const Rows64& x) const;
  // Row j is entry j.
  Quantised IndexKeys(int l, const Rows64& latents) const;
  Quantised CompressedKv(int l, const Rows64& latents) const;
  Quantised IndexQueries(int l, const Rows64& x, std::span<const int64_t> positions) const;
  // Scores of keys 0 .. n_keys-1 for each token: rows of `queries` [n, heads * dim] against `keys` [., dim].
  Rows64 IndexScores(int l, const Rows64& x, const Rows64& queries, const Rows64& keys) const;
  // attended[t]: the vectors that token t attends to, [., head_dim].
  Rows64 Attention(int l, const Rows64& x, std::span<const int64_t> positions,
                   std::span<const Rows64> attended) const;

  // --- selection; scores of the visible entries; sets ascending, ties to the lower index
  std::vector<int64_t> SelectEntries(std::span<const float> scores,
                                     const std::optional<std::vector<int64_t>>& candidates) const;
  std::vector<int64_t> CandidateBlocks(std::span<const float> scores) const;

  // --- mixture of experts (5.6)
  Rows64 RouterScores(int l, const Rows64& x) const;
  // The chosen experts, best first.
  std::vector<int64_t> ChooseExperts(int l, std::span<const float> scores) const;
  Rows64 ExpertWeights(const Rows64& scores, std::span<const std::vector<int64_t>> experts) const;
  Rows64 Experts(int l, const Rows64& x, std::span<const std::vector<int64_t>> experts,
                 const Rows64& expert_weights) const;

 private:
  Matrix64 LayerMatrix(int l, const std::string& name) const;
  std::vector<double> LayerValues(int l, const std::string& name) const;
  const Rope64& RopeOf(int l) const { return ratio(l) == 0 ? main_rope_ : compress_rope_; }
  Rows64 LowRankQuery(int l, const Rows64& x) const;
  Rows64 Collapse(const Rows64& streams, const Rows64& pre) const;
  void AttendHead(const double* q, const double* q_error, const Rows64& attended, double sink, double* out,
                  double* out_error) const;
  Rows64 RunExpert(int l, const std::string& name, const Rows64& x, std::span<const double> weights) const;

  const formats::ModelConfig& config_;
  const StoredWeights& weights_;
  ThreadPool& pool_;
  Rope64 main_rope_;
  Rope64 compress_rope_;
};

}  // namespace millrace::real_layer
