#include "engine/model_stepper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>

#include "engine/engine.h"
#include "engine/forced_prefix_constraint.h"
#include "engine/load.h"
#include "engine/loop.h"
#include "engine/recording_sink.h"
#include "model/weights_plan.h"

namespace millrace::engine {
namespace {

using ::testing::HasSubstr;

const char* const kMini = MILLRACE_SOURCE_DIR "/models/mini";

LoadOptions SmallOptions() {
  LoadOptions options;
  options.threads = 2;
  options.stepper.max_model_len = 2048;
  options.stepper.max_num_seqs = 3;
  options.stepper.max_batch_tokens = 96;
  return options;
}

LoadedModel LoadMini(const LoadOptions& options = SmallOptions()) {
  auto loaded = LoadStepModel(kMini, options);
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.error().message();
    std::abort();
  }
  return std::move(loaded).value();
}

std::vector<TokenId> RandomTokens(size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng() % 1200);
  return tokens;
}

// Feeds `tokens` in chunks of `chunk`; the logits after the last.
std::vector<float> LogitsAfter(StepModel& model, const std::vector<TokenId>& tokens, size_t chunk) {
  auto started = model.NewSequence(tokens);
  EXPECT_TRUE(started.ok());
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  for (size_t at = static_cast<size_t>(started->length); at < tokens.size(); at += chunk) {
    const auto part = std::span(tokens).subspan(at, std::min(chunk, tokens.size() - at));
    const bool last = at + part.size() == tokens.size();
    const StepItem item{.sequence = started->sequence.get(), .tokens = part, .wants_logits = last};
    model.Step({&item, 1}, last ? std::span<float>(logits) : std::span<float>());
  }
  return logits;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(ModelStepper, ChunksDoNotChangeABit) {
  LoadedModel mini = LoadMini();
  const std::vector<TokenId> tokens = RandomTokens(300, 1);
  const std::vector<float> expected = LogitsAfter(*mini.model, tokens, 96);
  for (size_t chunk : {1, 7, 64}) {
    mini.model->ClearCache();
    EXPECT_TRUE(SameBits(LogitsAfter(*mini.model, tokens, chunk), expected)) << chunk;
  }
}

TEST(ModelStepper, LateLayersForAllTokensDoNotChangeABit) {
  LoadOptions all = SmallOptions();
  all.stepper.late_layers = model::LateLayers::kAll;
  LoadedModel with_all = LoadMini(all);
  LoadedModel with_needed = LoadMini();
  for (size_t length : {1, 200, 700}) {
    const std::vector<TokenId> tokens = RandomTokens(length, 4);
    EXPECT_TRUE(
        SameBits(LogitsAfter(*with_needed.model, tokens, 96), LogitsAfter(*with_all.model, tokens, 50)))
        << length;
  }
}

TEST(ModelStepper, AReusedStateStartsAfresh) {
  LoadedModel mini = LoadMini();
  const std::vector<TokenId> tokens = RandomTokens(40, 2);
  const std::vector<float> fresh = LogitsAfter(*mini.model, tokens, 40);
  (void)LogitsAfter(*mini.model, RandomTokens(700, 3), 96);
  EXPECT_TRUE(SameBits(LogitsAfter(*mini.model, tokens, 40), fresh));
}

TEST(ModelStepper, SequencesReserveWholePagesAndGiveThemBack) {
  const auto tokens = [](size_t n) { return RandomTokens(n, static_cast<unsigned>(n)); };
  LoadOptions options = SmallOptions();
  options.stepper.kv_tokens = 4 * 256;
  LoadedModel mini = LoadMini(options);
  ModelStepper& model = *mini.model;
  EXPECT_EQ(model.kv_tokens(), 1024);
  {
    auto first = model.NewSequence(tokens(257));  // two pages
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(model.free_kv_tokens(), 512);
    auto too_long = model.NewSequence(tokens(513));
    ASSERT_FALSE(too_long.ok());
    EXPECT_EQ(too_long.error().code(), ErrorCode::kResourceExhausted);
    EXPECT_EQ(
        too_long.error().message(),
        "KV memory for a sequence of 513 tokens: 3 pages are needed and 1 kept for the sequences that run, "
        "2 of 4 are free");
    auto second = model.NewSequence(tokens(1));
    ASSERT_TRUE(second.ok());
    EXPECT_FALSE(model.NewSequence(tokens(256)).ok()) << "the first two could not grow";
    EXPECT_TRUE(model.Reserve(*second->sequence, 256).ok());
    EXPECT_EQ(model.free_kv_tokens(), 256);
    EXPECT_TRUE(model.Reserve(*second->sequence, 257).ok());
    const Status full = model.Reserve(*first->sequence, 513);
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.error().code(), ErrorCode::kResourceExhausted);
    EXPECT_EQ(model.cache_stats().in_use_tokens, 1024);
  }
  EXPECT_EQ(model.free_kv_tokens(), 1024);
}

TEST(ModelStepper, HoldsWhatThePlanSays) {
  const LoadOptions options = SmallOptions();
  LoadedModel mini = LoadMini(options);
  const auto layer_plan = model::LayerPlan::Build(mini.checkpoint->config());
  ASSERT_TRUE(layer_plan.ok());
  const auto plan = ModelStepper::PlanMemory(*layer_plan, options.stepper, mini.pool->size());
  ASSERT_TRUE(plan.ok());
  std::map<std::string, uint64_t> planned;
  for (const PlannedMemory& line : *plan) planned[line.name] = line.bytes;
  for (const PlannedMemory& line : model::PlanCheckpoint(*layer_plan)) planned[line.name] = line.bytes;
  planned["prompts"] = PromptBytes(2048, {.max_num_seqs = 3});
  planned["sequence tokens"] = SequenceTokenBytes(2048, 3);

  const Engine engine(std::move(mini.model), {.max_num_seqs = 3}, mini.ledger.get());
  std::map<std::string, const MemoryAccount*> accounts;
  for (const MemoryAccount* account : mini.ledger->accounts()) {
    EXPECT_TRUE(accounts.emplace(account->name(), account).second) << account->name() << " opened twice";
  }
  for (const auto& [name, bytes] : planned) {
    // Filled as they are used.
    if (name == "kv pages" || name == "prefix tails" || name == "prompts") continue;
    ASSERT_TRUE(accounts.contains(name)) << name;
    EXPECT_EQ(accounts[name]->live_bytes(), bytes) << name;
    EXPECT_EQ(accounts[name]->planned_bytes(), bytes) << name;
  }
  for (const auto& [name, account] : accounts) {
    // The small checkpoint's shards are not laid out for float kernels.
    if (name != "weights realigned") {
      EXPECT_TRUE(planned.contains(name)) << name;
    }
  }
  for (const char* name : {"kv pages", "prefix tails"}) {
    ASSERT_TRUE(accounts.contains(name)) << name;
    EXPECT_LE(accounts[name]->planned_bytes(), planned[name]);
    EXPECT_GE(accounts[name]->planned_bytes() * 1.01, static_cast<double>(planned[name])) << name;
  }
}

TEST(LoadStepModel, RefusesOptionsOutOfRangeByName) {
  const auto message = [](auto spoil) {
    LoadOptions options = SmallOptions();
    spoil(options);
    const auto loaded = LoadStepModel(kMini, options);
    EXPECT_FALSE(loaded.ok());
    return loaded.ok() ? std::string() : loaded.error().message();
  };
  EXPECT_EQ(message([](LoadOptions& o) { o.stepper.max_model_len = 32769; }),
            "max-model-len is 32769; it must be from 2 to 32768, the checkpoint's max_position_embeddings");
  EXPECT_EQ(message([](LoadOptions& o) { o.stepper.max_num_seqs = 0; }),
            "max-num-seqs is 0; it must be from 1 to 1024");
  EXPECT_EQ(message([](LoadOptions& o) { o.stepper.max_batch_tokens = 0; }),
            "max-num-batched-tokens is 0; it must be from 1 to 65536");
  EXPECT_THAT(message([](LoadOptions& o) { o.stepper.kv_tokens = 0; }), HasSubstr("max-total-tokens is 0"));
  EXPECT_THAT(message([](LoadOptions& o) { o.threads = -1; }), HasSubstr("threads is -1"));
  EXPECT_THAT(LoadStepModel("/nonexistent", SmallOptions()).error().message(), HasSubstr("/nonexistent"));
}

// Throws in the middle of the forward pass, in so many passes from now.
class Breaking : public model::LayerTrace {
 public:
  void OnTensor(const std::string&, std::span<const float>, std::span<const int64_t>) override {}
  void OnIntegers(const std::string&, std::span<const int64_t>, std::span<const int64_t>) override {}
  void OnLayerInput(int layer, std::span<float>, std::span<float>) override {
    if (layer != 2 || passes_left_ == 0 || --passes_left_ > 0) return;
    tails_in_flight_ = model_->cache_stats().tails;
    throw std::runtime_error("the layer broke");
  }
  // Any thread, while no pass runs.
  void BreakIn(int passes, const ModelStepper& model) {
    passes_left_ = passes;
    model_ = &model;
  }
  int64_t tails_in_flight() const { return tails_in_flight_; }

 private:
  int passes_left_ = 0;
  int64_t tails_in_flight_ = 0;
  const ModelStepper* model_ = nullptr;
};

// Tails are taken out of the running batch. When that never ends they come back, with all pages and slots.
TEST(ModelStepper, AStepThatThrowsWithTailsInFlightGivesEverythingBack) {
  Breaking trace;
  LoadOptions options = SmallOptions();
  LoadedModel unbroken = LoadMini(options);
  options.stepper.trace = &trace;
  LoadedModel mini = LoadMini(options);
  ModelStepper& model = *mini.model;
  StatsBoard board;
  Loop loop(std::move(mini.model), {.max_num_seqs = 3, .prefill_chunk = 96}, board);
  std::vector<std::vector<TokenId>> prompts = {RandomTokens(300, 5), RandomTokens(300, 6),
                                               RandomTokens(300, 7)};
  const auto answers = [](Loop& to, StatsBoard& at, const std::vector<std::vector<TokenId>>& to_prompts,
                          FinishReason reason) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const std::vector<TokenId>& prompt : to_prompts) {
      GenerationRequest request{.request_id = "broken", .prompt = prompt, .sampling = {}};
      request.sampling.temperature = 0;
      request.sampling.max_tokens = 8;
      request.sampling.ignore_eos = true;
      EXPECT_TRUE(at.TryJoinQueue(10, std::ssize(prompt)));
      sinks.push_back(std::make_shared<RecordingSink>());
      to.Enqueue({SeqId{sinks.size()}, std::move(request), sinks.back(), std::chrono::steady_clock::now()});
    }
    while (!to.idle()) to.Step();
    std::vector<std::vector<TokenId>> tokens;
    for (const auto& sink : sinks) {
      EXPECT_EQ(sink->WaitForFinish()->reason, reason);
      tokens.push_back(sink->tokens());
    }
    return tokens;
  };
  StatsBoard other_board;
  Loop other(std::move(unbroken.model), {.max_num_seqs = 3, .prefill_chunk = 96}, other_board);

  // First cold, 32 tokens of each a step; then behind the tails of what was read meanwhile.
  int64_t tails_before = 0;
  for (int round = 0; round < 2; ++round) {
    trace.BreakIn(8, model);
    EXPECT_THAT(answers(loop, board, prompts, FinishReason::kError), testing::Each(testing::IsEmpty()));
    EXPECT_EQ(trace.tails_in_flight(), tails_before + 3) << "one of each, when it broke";
    EXPECT_EQ(model.cache_stats().tails, tails_before);
    EXPECT_EQ(model.free_kv_tokens(), model.kv_tokens());
    const Status sound = model.CheckCache();
    EXPECT_TRUE(sound.ok()) << sound.error().message();
    EXPECT_EQ(board.Snapshot().running, 0);
    EXPECT_EQ(answers(loop, board, prompts, FinishReason::kLength),
              answers(other, other_board, prompts, FinishReason::kLength));
    tails_before = model.cache_stats().tails;
    for (auto& prompt : prompts) {
      const std::vector<TokenId> more = RandomTokens(260, 8);
      prompt.insert(prompt.end(), more.begin(), more.end());
    }
  }
}

struct Example {
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;
};

std::vector<TokenId> Ids(const boost::json::value& value) {
  return boost::json::value_to<std::vector<TokenId>>(value);
}

// The README's examples, without near ties: another order of sums may decide those otherwise.
std::vector<Example> MiniExamples() {
  std::ifstream file(std::string(kMini) + "/examples.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const boost::json::value entries = boost::json::parse(text);
  std::vector<Example> examples;
  for (const boost::json::value& entry : entries.as_array()) {
    if (entry.at("smallest_margin").as_double() < 0.01) continue;
    examples.push_back({Ids(entry.at("prompt_ids")), Ids(entry.at("output_ids"))});
  }
  EXPECT_GE(examples.size(), 12u);
  return examples;
}

// All examples at once, in small chunks, beside each other: the trained answers, token by token.
TEST(ModelStepper, TheEngineGivesTheMiniModelsAnswers) {
  const std::vector<Example> examples = MiniExamples();
  for (int max_num_seqs : {1, 3}) {
    LoadedModel mini = LoadMini();
    Engine engine(std::move(mini.model), {.max_num_seqs = max_num_seqs, .prefill_chunk = 40});
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const Example& example : examples) {
      GenerationRequest request;
      request.prompt = example.prompt;
      request.sampling.temperature = 0;
      request.sampling.max_tokens = 200;
      sinks.push_back(std::make_shared<RecordingSink>());
      ASSERT_TRUE(engine.Submit(std::move(request), sinks.back()).ok());
    }
    for (size_t i = 0; i < examples.size(); ++i) {
      const auto finish = sinks[i]->WaitForFinish();
      ASSERT_TRUE(finish.has_value());
      EXPECT_EQ(finish->reason, FinishReason::kStop);
      EXPECT_EQ(sinks[i]->tokens(), examples[i].output) << "example " << i;
    }
  }
}

// Up to 20 greedy tokens behind `prompt`, and how many of its tokens were there already.
struct GreedyAnswer {
  std::vector<TokenId> tokens = {};
  int64_t cached = 0;
};
GreedyAnswer AnswerTo(StepModel& model, const std::vector<TokenId>& prompt) {
  GreedyAnswer answer;
  auto started = model.NewSequence(prompt);
  EXPECT_TRUE(started.ok());
  answer.cached = started->length;
  std::vector<TokenId> tokens = prompt;
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  auto seen = static_cast<size_t>(started->length);
  while (answer.tokens.size() < 20 && tokens.back() != model.eos_token_id()) {
    while (seen < tokens.size()) {
      const auto part = std::span(tokens).subspan(seen, std::min<size_t>(96, tokens.size() - seen));
      seen += part.size();
      const StepItem item{
          .sequence = started->sequence.get(), .tokens = part, .wants_logits = seen == tokens.size()};
      model.Step({&item, 1}, item.wants_logits ? std::span<float>(logits) : std::span<float>());
    }
    tokens.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
    answer.tokens.push_back(tokens.back());
    EXPECT_TRUE(model.Reserve(*started->sequence, std::ssize(tokens)).ok());
  }
  return answer;
}

// A fact early, half way and late in a conversation whose turns go on behind each other's cached pages and
// tails: what is remembered, and every token, is as in a cold run.
TEST(ModelStepper, ThreeTurnsRememberAFactAsColdOnesDo) {
  LoadOptions options = SmallOptions();
  options.stepper.page_tokens = model::kMinPageTokens;
  LoadedModel mini = LoadMini(options);
  const std::vector<Example> examples = MiniExamples();
  const Example& name = examples[6];  // "My name is ...", the answer to that, and the question what it is
  const TokenId user = name.prompt[1];
  const auto question = std::find(name.prompt.begin() + 2, name.prompt.end(), user);
  ASSERT_NE(question, name.prompt.end());
  const std::vector<TokenId> fact(name.prompt.begin() + 1, question), ask(question, name.prompt.end());
  std::vector<TokenId> filler(examples[2].prompt.begin() + 1, examples[2].prompt.end());
  filler.insert(filler.end(), examples[2].output.begin(), examples[2].output.end());
  for (const int before : {1, 5, 9}) {
    std::vector<TokenId> conversation = {name.prompt[0]};
    const auto add = [&](const std::vector<TokenId>& tokens) {
      conversation.insert(conversation.end(), tokens.begin(), tokens.end());
    };
    for (int i = 0; i < 10; ++i) {
      if (i == before) add(fact);
      add(filler);
    }
    mini.model->ClearCache();
    std::vector<std::vector<TokenId>> prompts;
    for (int turn = 0; turn < 3; ++turn) {
      add(ask);
      const GreedyAnswer warm = AnswerTo(*mini.model, conversation);
      EXPECT_EQ(warm.tokens, name.output) << "fact behind " << before << ", turn " << turn;
      if (turn > 0) {
        EXPECT_GT(warm.cached, std::ssize(prompts.back()) - model::kMinPageTokens);
      }
      prompts.push_back(conversation);
      add(warm.tokens);
      add(filler);
    }
    for (const std::vector<TokenId>& prompt : prompts) {
      mini.model->ClearCache();
      const GreedyAnswer cold = AnswerTo(*mini.model, prompt);
      EXPECT_EQ(cold.cached, 0);
      EXPECT_EQ(cold.tokens, name.output) << "fact behind " << before;
    }
  }
}

// Forces what the model has said of its own accord: the rest is then the same, although the forced part went
// through the model as one piece and not token by token.
TEST(ModelStepper, AForcedRunLeavesTheModelWhereItsOwnTokensDo) {
  LoadedModel mini = LoadMini();
  Engine engine(std::move(mini.model), {.max_num_seqs = 3, .prefill_chunk = 40});
  std::vector<GenerationRequest> requests;
  for (const Example& example : MiniExamples()) {
    GenerationRequest request;
    request.prompt = example.prompt;
    request.sampling.max_tokens = 200;
    request.sampling.seed = requests.size();
    request.sampling.frequency_penalty = 0.1f;
    requests.push_back(std::move(request));
  }
  const auto answers = [&] {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const GenerationRequest& request : requests) {
      sinks.push_back(std::make_shared<RecordingSink>());
      EXPECT_TRUE(engine.Submit(request, sinks.back()).ok());
    }
    std::vector<std::vector<TokenId>> tokens;
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->WaitForFinish().has_value());
      tokens.push_back(sink->tokens());
    }
    return tokens;
  };
  const std::vector<std::vector<TokenId>> expected = answers();
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto half = static_cast<ptrdiff_t>(expected[i].size() / 2);
    requests[i].sampling.constraint = std::make_shared<ForcedPrefixConstraint>(
        ForcedPrefix{.ids = {expected[i].begin(), expected[i].begin() + half}});
  }
  EXPECT_EQ(answers(), expected);
}

}  // namespace
}  // namespace millrace::engine
