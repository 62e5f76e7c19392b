#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "model/checkpoint_testing.h"
#include "model/forward_testing.h"

// Late layers that leave tokens out against late layers that run for all: no bit of anything that is asked
// for may differ.

namespace millrace::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTokens = 512;

// One checkpoint, loaded once for each kind of late layers.
struct BothWays {
  std::unique_ptr<LoadedModel> needed;
  std::unique_ptr<LoadedModel> all;

  static BothWays Open(const fs::path& dir, Numerics numerics = Numerics::kReference) {
    const auto open = [&](LateLayers late_layers) {
      return LoadedModel::Open(
          dir, 2,
          {.max_batch_tokens = 320, .max_batch_items = 6, .late_layers = late_layers, .numerics = numerics});
    };
    return {open(LateLayers::kNeeded), open(LateLayers::kAll)};
  }
  const LayerPlan& plan() const { return needed->forward->plan(); }
  int64_t vocab_size() const { return needed->vocab_size(); }
  int64_t reach() const { return plan().config.sliding_window - 1; }
  // Positions at the end of a prompt that the first late layer is evaluated at.
  int64_t field() const {
    const auto n_layers = static_cast<int64_t>(plan().layers.size());
    return reach() * (n_layers - 1 - plan().first_late_layer()) + 1;
  }
};

// Window rings that start as NaN codes with NaN scales: whoever reads what was left out spoils all that
// follows.
void Poison(const LayerPlan& plan, SequenceState& state) {
  const formats::ModelConfig& config = plan.config;
  for (int l = 0; l < static_cast<int>(plan.layers.size()); ++l) {
    for (int64_t pos = 0; pos < config.sliding_window; ++pos) {
      std::fill_n(state.window_codes(l, pos), config.head_dim, uint8_t{0x7F});
      std::fill_n(state.window_scales(l, pos), config.head_dim / 32, uint8_t{0xFF});
    }
  }
}

std::vector<TokenId> RandomTokens(int64_t n, int64_t vocab_size, std::mt19937& rng) {
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng() % static_cast<unsigned>(vocab_size));
  return tokens;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Everything the next token can see.
void ExpectSameState(const BothWays& models, TestSequence& needed, TestSequence& all) {
  const LayerPlan& plan = models.plan();
  const int64_t length = all.state.length();
  ASSERT_EQ(needed.state.length(), length);
  ASSERT_LE(needed.state.results_from(), length);
  EXPECT_EQ(needed.state.ngram_history, all.state.ngram_history);
  for (size_t page = 0; page < all.state.pages.size(); ++page) {
    EXPECT_EQ(std::memcmp(needed.state.pages[page], all.state.pages[page],
                          models.needed->forward->page_layout().page_bytes),
              0)
        << "page " << page;
  }
  for (int s = 0; s < static_cast<int>(plan.kv_sources.size()); ++s) {
    if (length % 2 == 0 ||
        plan.layers[static_cast<size_t>(plan.kv_sources[static_cast<size_t>(s)])].ratio < 2)
      continue;
    EXPECT_TRUE(SameBits(needed.state.partial_kv(s), all.state.partial_kv(s))) << "source " << s;
    EXPECT_TRUE(SameBits(needed.state.partial_gate(s), all.state.partial_gate(s))) << "source " << s;
  }
  const auto dim = static_cast<size_t>(plan.config.head_dim);
  for (int l = 0; l < static_cast<int>(plan.layers.size()); ++l) {
    for (int64_t pos = std::max<int64_t>(0, length - models.reach()); pos < length; ++pos) {
      ASSERT_EQ(std::memcmp(needed.state.window_codes(l, pos), all.state.window_codes(l, pos), dim), 0)
          << "layer " << l << " position " << pos << " of " << length;
      ASSERT_EQ(std::memcmp(needed.state.window_scales(l, pos), all.state.window_scales(l, pos), dim / 32), 0)
          << "layer " << l << " position " << pos << " of " << length;
    }
  }
}

// One sequence of a scenario, run both ways.
struct Twin {
  Twin(const BothWays& models, std::vector<TokenId> tokens)
      : prompt(std::move(tokens)),
        needed(*models.needed->forward, kMaxTokens),
        all(*models.all->forward, kMaxTokens) {
    Poison(models.plan(), needed.state);
    Poison(models.plan(), all.state);
  }

  // The first position that wants results.
  int64_t results_from() const { return exact_at.value_or(static_cast<int64_t>(prompt.size()) - 1); }
  int64_t left() const { return static_cast<int64_t>(prompt.size()) - all.state.length(); }
  // The next `n` tokens of the prompt, or, when it is read, the token that `last_logits` make most probable.
  std::vector<TokenId> Next(int64_t n) const {
    if (left() <= 0) {
      const auto best = std::max_element(last_logits.begin(), last_logits.end());
      return {static_cast<TokenId>(best - last_logits.begin())};
    }
    const auto first = prompt.begin() + all.state.length();
    return {first, first + std::min(n, left())};
  }

  std::vector<TokenId> prompt;
  std::optional<int64_t> exact_at = std::nullopt;  // a length inside the prompt
  TestSequence needed;
  TestSequence all;
  std::vector<float> last_logits;
};

// Runs the next tokens of some sequences as one batch, both ways, and compares the logits.
void Step(const BothWays& models, std::span<Twin* const> twins, std::span<const int64_t> sizes) {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<BatchItem> items;
  for (size_t i = 0; i < twins.size(); ++i) {
    const Twin& twin = *twins[i];
    tokens.push_back(twin.Next(sizes[i]));
    const bool ends = twin.left() <= static_cast<int64_t>(tokens.back().size());
    items.push_back({.tokens = tokens.back(),
                     .logits = ends ? LogitsWanted::kLast : LogitsWanted::kNone,
                     .results_from = twin.results_from()});
  }
  const auto vocab = static_cast<size_t>(models.vocab_size());
  std::vector<float> needed(items.size() * vocab);
  std::vector<float> all(items.size() * vocab);
  for (size_t i = 0; i < twins.size(); ++i) items[i].state = &twins[i]->needed.state;
  models.needed->forward->Run(items, needed);
  for (size_t i = 0; i < twins.size(); ++i) items[i].state = &twins[i]->all.state;
  models.all->forward->Run(items, all);
  size_t row = 0;
  for (size_t i = 0; i < twins.size(); ++i) {
    if (items[i].logits == LogitsWanted::kNone) continue;
    const auto logits = std::span(all).subspan(row++ * vocab, vocab);
    ASSERT_TRUE(std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }));
    ASSERT_TRUE(SameBits(std::span(needed).subspan((row - 1) * vocab, vocab), logits))
        << "item " << i << " at position " << twins[i]->all.state.length() - 1;
    twins[i]->last_logits.assign(logits.begin(), logits.end());
  }
}

// Reads one prompt in chunks of random sizes up to `max_chunk`, then decodes.
void ReadAndDecode(const BothWays& models, int64_t length, int64_t max_chunk, int n_decoded,
                   std::mt19937& rng) {
  SCOPED_TRACE(testing::Message() << length << " tokens in chunks of up to " << max_chunk);
  Twin twin(models, RandomTokens(length, models.vocab_size(), rng));
  Twin* const twins[] = {&twin};
  while (twin.left() > 0) {
    const int64_t size = 1 + static_cast<int64_t>(rng() % static_cast<unsigned>(max_chunk));
    ASSERT_NO_FATAL_FAILURE(Step(models, twins, std::span(&size, 1)));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSameState(models, twin.needed, twin.all));
  const int64_t one = 1;
  for (int i = 0; i < n_decoded; ++i) ASSERT_NO_FATAL_FAILURE(Step(models, twins, std::span(&one, 1)));
  ASSERT_NO_FATAL_FAILURE(ExpectSameState(models, twin.needed, twin.all));
}

// Lengths at which a layer starts to leave tokens out, one less and one more of each.
std::vector<int64_t> EdgeLengths(const BothWays& models) {
  std::vector<int64_t> lengths = {1, 2};
  for (int64_t edge = 1; edge <= models.field() + models.reach(); edge += models.reach()) {
    for (int64_t length : {edge - 1, edge, edge + 1}) {
      if (length > 2) lengths.push_back(length);
    }
  }
  return lengths;
}

void ExpectNoDifferenceAtEdges(const BothWays& models) {
  ASSERT_TRUE(models.needed && models.all);
  std::mt19937 rng(5);
  for (int64_t length : EdgeLengths(models)) {
    for (int64_t max_chunk : {models.reach() / 2, int64_t{320}}) {
      ASSERT_NO_FATAL_FAILURE(ReadAndDecode(models, length, max_chunk, 2, rng));
    }
  }
}

TEST(LateLayers, ThePlanFollowsTheReleasedSchedule) {
  LayerPlan plan;
  plan.config.sliding_window = 128;
  plan.layers.resize(40);
  plan.kv_sources = {2, 8, 14, 20};
  EXPECT_EQ(plan.first_late_layer(), 20);
  constexpr int64_t kLength = 100'000;
  for (int l = 0; l < 20; ++l) EXPECT_EQ(plan.FirstEvaluated(l, kLength - 1), 0) << l;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(kLength - plan.FirstEvaluated(20 + i, kLength - 1), 127 * (19 - i) + 1) << i;
  }
  EXPECT_EQ(kLength - plan.FirstEvaluated(20, kLength - 1), 2414);
  EXPECT_EQ(plan.FirstEvaluated(20, 2413), 0);
  EXPECT_EQ(plan.FirstEvaluated(20, 2412), 0) << "never before the first position";

  plan.kv_sources.clear();
  EXPECT_EQ(plan.first_late_layer(), 0) << "without global state every layer is late";
  EXPECT_EQ(kLength - plan.FirstEvaluated(0, kLength - 1), 127 * 39 + 1);
}

TEST(LateLayers, NothingChangesInTheTinyModel) {
  const BothWays models = BothWays::Open(TinyCheckpoint());
  ASSERT_NO_FATAL_FAILURE(ExpectNoDifferenceAtEdges(models));
  std::mt19937 rng(3);
  ASSERT_NO_FATAL_FAILURE(ReadAndDecode(models, 3 * models.field() + 7, 90, 40, rng));
  ASSERT_NO_FATAL_FAILURE(ReadAndDecode(models, models.field() + 150, 1, 40, rng));
}

TEST(LateLayers, NothingChangesInFastNumerics) {
  const BothWays models = BothWays::Open(TinyCheckpoint(), Numerics::kFast);
  ASSERT_TRUE(models.needed && models.all);
  std::mt19937 rng(2);
  ASSERT_NO_FATAL_FAILURE(ReadAndDecode(models, models.field() + 120, 70, 10, rng));
}

TEST(LateLayers, NothingChangesInTheGoldenModels) {
  for (const char* name : {"v41-micro", "v41-small"}) {
    const fs::path dir = fs::path(MILLRACE_SHARED_DIR) / "golden/v41" / name;
    if (!fs::exists(dir)) GTEST_SKIP() << "goldens are not here: " << dir;
    SCOPED_TRACE(name);
    const BothWays models = BothWays::Open(dir);
    ASSERT_NO_FATAL_FAILURE(ExpectNoDifferenceAtEdges(models));
    std::mt19937 rng(4);
    ASSERT_NO_FATAL_FAILURE(ReadAndDecode(models, 2 * models.field(), 90, 40, rng));
  }
}

// The n-gram rows of a late layer are chosen before the first layer, for all tokens.
TEST(LateLayers, NothingChangesWhereALateLayerHasNgrams) {
  DamagedCheckpoint checkpoint;
  const std::string from = "layers.4.engram";
  const std::string to = "layers.6.engram";
  std::map<std::string, std::vector<EditableTensor>> shards;
  for (auto& [name, shard] : checkpoint.index().weight_map) {
    if (const size_t at = name.find(from); at != std::string::npos) {
      shards.try_emplace(shard, checkpoint.ReadShard(shard));
      name.replace(at, from.size(), to);
    }
  }
  ASSERT_FALSE(shards.empty());
  for (auto& [shard, tensors] : shards) {
    for (EditableTensor& tensor : tensors) {
      if (const size_t at = tensor.info.name.find(from); at != std::string::npos)
        tensor.info.name.replace(at, from.size(), to);
    }
    checkpoint.WriteShard(shard, tensors);
  }
  checkpoint.WriteIndex();
  std::string config = ReadAll(checkpoint.path() / "config.json");
  const size_t ids = config.find("\"engram_layer_ids\"");
  ASSERT_NE(ids, std::string::npos);
  const size_t four = config.find('4', ids);
  ASSERT_LT(four, config.find(']', ids));
  WriteAll(checkpoint.path() / "config.json", config.replace(four, 1, "6"));

  const BothWays models = BothWays::Open(checkpoint.path());
  ASSERT_TRUE(models.needed && models.all);
  ASSERT_TRUE(models.plan().layers[6].engram.has_value());
  std::mt19937 rng(7);
  for (int64_t max_chunk : {40, 200}) {
    ASSERT_NO_FATAL_FAILURE(ReadAndDecode(models, models.field() + 100, max_chunk, 3, rng));
  }
}

// Sequences that start at different times, so that batches hold prompts before, at and inside their last
// windows beside sequences that decode.
TEST(LateLayers, NothingChangesInMixedBatches) {
  const BothWays models = BothWays::Open(TinyCheckpoint());
  ASSERT_TRUE(models.needed && models.all);
  std::mt19937 rng(11);
  std::vector<std::unique_ptr<Twin>> twins;
  for (int64_t length : {3, 64, 260, 95, 400, 33}) {
    twins.push_back(std::make_unique<Twin>(models, RandomTokens(length, models.vocab_size(), rng)));
  }
  for (int step = 0; step < 60; ++step) {
    std::vector<Twin*> batch;
    std::vector<int64_t> sizes;
    for (const auto& twin : twins) {
      if (rng() % 4 == 0) continue;
      batch.push_back(twin.get());
      sizes.push_back(1 + static_cast<int64_t>(rng() % 50));
    }
    std::shuffle(batch.begin(), batch.end(), rng);
    if (batch.empty()) continue;
    ASSERT_NO_FATAL_FAILURE(Step(models, batch, sizes)) << "step " << step;
  }
  for (const auto& twin : twins) {
    EXPECT_LT(twin->left(), 0) << "decodes at the end";
    ASSERT_NO_FATAL_FAILURE(ExpectSameState(models, twin->needed, twin->all));
  }
}

// As for a snapshot from which another prompt goes on.
TEST(LateLayers, AStateInsideAPromptIsExactWhereItWasAskedFor) {
  const BothWays models = BothWays::Open(TinyCheckpoint());
  ASSERT_TRUE(models.needed && models.all);
  std::mt19937 rng(19);
  Twin twin(models, RandomTokens(450, models.vocab_size(), rng));
  Twin* const twins[] = {&twin};
  for (const int64_t length : {1, 100, 256, 300}) {
    twin.exact_at = length;
    const int64_t size = length - twin.all.state.length();
    ASSERT_NO_FATAL_FAILURE(Step(models, twins, std::span(&size, 1)));
    ASSERT_NO_FATAL_FAILURE(ExpectSameState(models, twin.needed, twin.all));
  }
  twin.exact_at.reset();
  const int64_t size = 75;
  while (twin.left() > 0) ASSERT_NO_FATAL_FAILURE(Step(models, twins, std::span(&size, 1)));
  ASSERT_NO_FATAL_FAILURE(ExpectSameState(models, twin.needed, twin.all));
}

// Counts the rows that each layer shows.
class RowCounter : public LayerTrace {
 public:
  void OnTensor(const std::string& name, std::span<const float>, std::span<const int64_t> shape) override {
    rows[name] += shape[0];
  }
  void OnIntegers(const std::string&, std::span<const int64_t>, std::span<const int64_t>) override {}

  std::map<std::string, int64_t> rows;
};

TEST(LateLayers, RunForTheReceptiveFieldAlone) {
  const auto model = LoadedModel::Open(TinyCheckpoint(), 1, {.max_batch_tokens = 64});
  ASSERT_NE(model, nullptr);
  constexpr int64_t kLength = 300;
  std::mt19937 rng(13);
  const std::vector<TokenId> tokens = RandomTokens(kLength, model->vocab_size(), rng);
  TestSequence sequence(*model->forward, kLength);
  RowCounter counter;
  std::vector<float> logits(static_cast<size_t>(model->vocab_size()));
  for (int64_t at = 0; at < kLength; at += 64) {
    const auto chunk = std::span(tokens).subspan(static_cast<size_t>(at),
                                                 static_cast<size_t>(std::min<int64_t>(64, kLength - at)));
    const bool last = sequence.state.length() + static_cast<int64_t>(chunk.size()) == kLength;
    const BatchItem item{.state = &sequence.state,
                         .tokens = chunk,
                         .logits = last ? LogitsWanted::kLast : LogitsWanted::kNone,
                         .results_from = kLength - 1};
    model->forward->Run(std::span(&item, 1), logits, &counter);
    EXPECT_EQ(sequence.state.results_from(), kLength - 1);
  }
  for (int l = 0; l < 8; ++l) {
    const std::string layer = "L" + std::to_string(l) + ".";
    EXPECT_EQ(counter.rows[layer + "streams"], l < 5 ? kLength : 31 * (7 - l) + 1) << layer;
    // The last source makes its window entries along with its global state.
    EXPECT_EQ(counter.rows[layer + "window_kv"], l < 6 ? kLength : 31 * (8 - l) + 1) << layer;
  }
}

TEST(LateLayers, WantedLogitsAreWantedResults) {
  const BothWays models = BothWays::Open(TinyCheckpoint());
  ASSERT_TRUE(models.needed && models.all);
  std::mt19937 rng(17);
  const std::vector<TokenId> tokens = RandomTokens(200, models.vocab_size(), rng);
  const std::vector<float> expected = RunPrompt(*models.all, tokens, 0);
  const auto vocab = static_cast<size_t>(models.vocab_size());
  for (const LogitsWanted wanted : {LogitsWanted::kAll, LogitsWanted::kLast}) {
    TestSequence sequence(*models.needed->forward, 200);
    Poison(models.plan(), sequence.state);
    const size_t n = wanted == LogitsWanted::kAll ? 200 : 1;
    std::vector<float> logits(n * vocab);
    const BatchItem item{
        .state = &sequence.state, .tokens = tokens, .logits = wanted, .results_from = 100'000};
    models.needed->forward->Run(std::span(&item, 1), logits);
    EXPECT_TRUE(SameBits(logits, std::span(expected).last(n * vocab)));
    EXPECT_EQ(sequence.state.results_from(), wanted == LogitsWanted::kAll ? 0 : 199);
  }
}

TEST(LateLayers, WhatWasLeftOutIsNotReadLater) {
  const auto model = LoadedModel::Open(TinyCheckpoint(), 1, {.max_batch_tokens = 64});
  ASSERT_NE(model, nullptr);
  TestSequence sequence(*model->forward, 128);
  const std::vector<TokenId> tokens(50, TokenId{9});
  BatchItem item{
      .state = &sequence.state, .tokens = tokens, .logits = LogitsWanted::kNone, .results_from = 120};
  model->forward->Run(std::span(&item, 1), {});
  EXPECT_EQ(sequence.state.length(), 50);
  EXPECT_EQ(sequence.state.results_from(), 120);
  std::vector<float> logits(static_cast<size_t>(model->vocab_size()));
  item.logits = LogitsWanted::kLast;
  EXPECT_DEATH(model->forward->Run(std::span(&item, 1), logits), "left out");
  item = {.state = &sequence.state, .tokens = tokens, .logits = LogitsWanted::kNone};
  EXPECT_DEATH(model->forward->Run(std::span(&item, 1), {}), "left out");
  sequence.state.Reset();
  model->forward->Run(std::span(&item, 1), {});
  EXPECT_EQ(sequence.state.results_from(), 0) << "a state that starts afresh has left nothing out";
}

}  // namespace
}  // namespace millrace::model
