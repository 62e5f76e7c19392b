#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/load.h"
#include "formats/json.h"
#include "formats/text_file.h"
#include "text/tokenizer.h"

// The trained mini checkpoint end to end: its greedy answers are goldens, and it finds what is written far
// back.
namespace millrace {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const fs::path kMini = fs::path(MILLRACE_SOURCE_DIR) / "models/mini";

class Mini : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine::LoadOptions options;
    options.stepper.max_model_len = 8192;
    options.stepper.max_num_seqs = 1;
    options.stepper.max_batch_tokens = 256;
    Result<engine::LoadedModel> loaded = engine::LoadStepModel(kMini, options);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    loaded_ = std::make_unique<engine::LoadedModel>(std::move(loaded).value());
    tokenizer_ = std::make_unique<text::Tokenizer>(std::move(text::Tokenizer::Load(kMini)).value());
  }
  static void TearDownTestSuite() {
    loaded_.reset();
    tokenizer_.reset();
  }

  // The greedy continuation of `prompt`, up to and with the end token.
  static std::vector<TokenId> Answer(const std::vector<TokenId>& prompt, size_t max_tokens) {
    engine::StepModel& model = *loaded_->model;
    const auto started = std::move(model.NewSequence(prompt)).value();
    engine::StepSequence& sequence = *started.sequence;
    EXPECT_TRUE(model.Reserve(sequence, std::ssize(prompt) + static_cast<int64_t>(max_tokens)).ok());
    std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
    std::vector<TokenId> answer;
    const auto chunk = static_cast<size_t>(model.max_batch_tokens());
    for (auto at = static_cast<size_t>(started.length); at < prompt.size(); at += chunk) {
      const size_t n = std::min(chunk, prompt.size() - at);
      Step(&sequence, std::span(prompt).subspan(at, n), at + n == prompt.size(), logits);
    }
    while (answer.size() < max_tokens) {
      answer.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
      if (answer.back() == model.eos_token_id()) break;
      Step(&sequence, std::span(&answer.back(), 1), true, logits);
    }
    return answer;
  }

  static void Step(engine::StepSequence* sequence, std::span<const TokenId> tokens, bool wants_logits,
                   std::vector<float>& logits) {
    const engine::StepItem item{.sequence = sequence, .tokens = tokens, .wants_logits = wants_logits};
    loaded_->model->Step(std::span(&item, 1), wants_logits ? std::span<float>(logits) : std::span<float>());
  }

  static std::unique_ptr<engine::LoadedModel> loaded_;
  static std::unique_ptr<text::Tokenizer> tokenizer_;
};

std::unique_ptr<engine::LoadedModel> Mini::loaded_;
std::unique_ptr<text::Tokenizer> Mini::tokenizer_;

std::vector<TokenId> Ids(const json::value& value) {
  std::vector<TokenId> ids;
  for (const json::value& id : value.as_array()) ids.push_back(static_cast<TokenId>(id.as_int64()));
  return ids;
}

TEST_F(Mini, GivesTheGreedyAnswersOfItsReadme) {
  const std::string text = *formats::ReadTextFile(kMini / "examples.json", size_t{1} << 20);
  const json::value examples = *formats::ParseJson(text);
  ASSERT_EQ(examples.as_array().size(), 14u);
  for (const json::value& example : examples.as_array()) {
    const std::string prompt(example.at("prompt").as_string());
    const std::vector<TokenId> want = Ids(example.at("output_ids"));
    EXPECT_EQ(tokenizer_->EncodePrompt(prompt), Ids(example.at("prompt_ids"))) << prompt;
    const std::vector<TokenId> got = Answer(Ids(example.at("prompt_ids")), want.size());
    EXPECT_EQ(got, want) << prompt << "\n" << tokenizer_->Decode(got, text::ControlTokens::kKeep);
  }
}

// A text of `n_sentences` with the code of one name at `depth` and those of three others elsewhere, then the
// question.
struct Needle {
  std::string prompt;
  std::string name;
  std::string code;
};

Needle MakeNeedle(uint32_t seed, size_t n_sentences, double depth) {
  const std::vector<std::string> names = {"Delta",  "Coral",  "Onyx",  "Willow", "Nova",  "Canyon",
                                          "Orion",  "Harbor", "Comet", "Copper", "Raven", "Falcon",
                                          "Summit", "Maple",  "Eagle", "Vertex"};
  const std::vector<std::string> nouns = {"bridge", "queen", "farmer", "sailor", "baker", "king",
                                          "horse",  "tree",  "tower",  "ship",   "lamp",  "boat"};
  const std::vector<std::string> adjectives = {"green", "happy", "small", "quiet", "heavy", "slow"};
  const std::vector<std::string> verbs = {"watches", "finds", "carries", "hears", "builds", "paints"};
  std::mt19937 rng(seed);
  const auto pick = [&](const std::vector<std::string>& from) { return from[rng() % from.size()]; };

  std::vector<std::string> sentences;
  for (size_t i = 0; i < n_sentences; ++i) {
    sentences.push_back(fmt::format("The {} {} {} the {} near the {}.", pick(adjectives), pick(nouns),
                                    pick(verbs), pick(nouns), pick(nouns)));
  }
  Needle needle;
  const size_t first = rng() % names.size();
  for (size_t i = 0; i < 4; ++i) {
    const std::string name = names[(first + i * 3) % names.size()];
    const std::string code = fmt::format("{:04}", rng() % 10000);
    const size_t at =
        i == 0 ? static_cast<size_t>(depth * static_cast<double>(n_sentences)) : rng() % n_sentences;
    sentences[at] += fmt::format(" The secret code of {} is {}.", name, code);
    if (i == 0) needle.name = name, needle.code = code;
  }
  needle.prompt =
      fmt::format("<｜begin▁of▁sentence｜><｜User｜>{} What is the secret code of {}?<｜Assistant｜></think>",
                  fmt::join(sentences, " "), needle.name);
  return needle;
}

TEST_F(Mini, FindsNeedlesAtEveryDepthAndLength) {
  for (const size_t n_sentences : {20u, 80u, 160u, 330u}) {
    for (const double depth : {0.1, 0.5, 0.9}) {
      const Needle needle = MakeNeedle(static_cast<uint32_t>(n_sentences), n_sentences, depth);
      const std::vector<TokenId> prompt = tokenizer_->EncodePrompt(needle.prompt);
      const std::string answer = tokenizer_->Decode(Answer(prompt, 24));
      EXPECT_EQ(answer, fmt::format("The secret code of {} is {}.", needle.name, needle.code))
          << prompt.size() << " tokens, depth " << depth;
    }
  }
}

}  // namespace
}  // namespace millrace
