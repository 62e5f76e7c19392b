#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "model/checkpoint_testing.h"
#include "model/forward_testing.h"

// Synthetic weights are of use only if a forward pass over them behaves like one over trained weights.

namespace millrace::model {
namespace {

class Recorder : public LayerTrace {
 public:
  void OnTensor(const std::string& name, std::span<const float> values, std::span<const int64_t>) override {
    recorded[name].assign(values.begin(), values.end());
  }
  void OnIntegers(const std::string& name, std::span<const int64_t> values,
                  std::span<const int64_t>) override {
    integers[name].assign(values.begin(), values.end());
  }

  std::map<std::string, std::vector<float>> recorded;
  std::map<std::string, std::vector<int64_t>> integers;
};

double Rms(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(SyntheticForward, TinyGivesFiniteAndVariedLogits) {
  const auto model = LoadedModel::Open(TinyCheckpoint(), 1, {});
  ASSERT_NE(model, nullptr);
  constexpr size_t kTokens = 200;
  std::vector<TokenId> ids;
  for (size_t i = 0; i < kTokens; ++i) ids.push_back(static_cast<TokenId>((i * 389 + 17) % 1024));
  Recorder trace;
  const std::vector<float> logits = RunPrompt(*model, ids, 0, &trace);

  const auto vocab = static_cast<size_t>(model->vocab_size());
  std::set<ptrdiff_t> best;
  for (size_t t = 0; t < kTokens; ++t) {
    const std::span<const float> row = std::span(logits).subspan(t * vocab, vocab);
    ASSERT_TRUE(std::all_of(row.begin(), row.end(), [](float logit) { return std::isfinite(logit); })) << t;
    EXPECT_GT(Rms(row), 0.5) << t;
    EXPECT_LT(Rms(row), 8) << t;
    best.insert(std::max_element(row.begin(), row.end()) - row.begin());
  }
  EXPECT_GT(best.size(), kTokens / 4) << "tokens lead to different tokens";

  for (int l = 0; l < 8; ++l) {
    const std::string layer = "L" + std::to_string(l) + ".";
    EXPECT_GT(Rms(trace.recorded[layer + "streams"]), 0.3) << layer;
    EXPECT_LT(Rms(trace.recorded[layer + "streams"]), 30)
        << layer << " streams neither die out nor grow without bound";
    EXPECT_GT(Rms(trace.recorded[layer + "attn_out"]), 0.05) << layer;
    EXPECT_GT(Rms(trace.recorded[layer + "ffn_out"]), 0.05) << layer;
    const std::vector<int64_t>& experts = trace.integers[layer + "router_idx"];
    EXPECT_EQ(std::set<int64_t>(experts.begin(), experts.end()).size(), 12u)
        << layer << " every expert is used";
  }
}

}  // namespace
}  // namespace millrace::model
