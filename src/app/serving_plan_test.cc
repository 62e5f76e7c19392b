#include "app/serving_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/units.h"
#include "formats/hf_config.h"
#include "model/catalogue.h"
#include "model/layer_plan.h"
#include "model/sequence_state.h"
#include "model/synthetic_checkpoint.h"

namespace millrace::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

formats::ModelConfig Released() {
  return *formats::ReadHfConfig(MILLRACE_SOURCE_DIR "/tests/data/config/released.json");
}

ServingOptions Options(int threads = 8) {
  ServingOptions options;
  options.load.threads = threads;
  return options;
}

rig::MemoryBudget Budget(uint64_t bytes) {
  return {bytes, "--ram"};
}

ServingPlan Plan(const ServingOptions& options, const AutomaticSizes& automatic,
                 const rig::MemoryBudget& budget) {
  auto plan = PlanServing(Released(), options, automatic, budget);
  EXPECT_TRUE(plan.ok()) << plan.error().message();
  return *std::move(plan);
}

// The ratio list of the released file is longer than its list of layers: three draft stages with ratio 0
// follow. An engine that priced them as layers of full context found 8 times fewer tokens a GiB.
TEST(ServingPlan, ATokenCosts890BytesWhateverStandsBehindTheLastLayer) {
  const auto page_bytes = [](const formats::ModelConfig& config) {
    return model::PageLayout(*model::LayerPlan::Build(config)).page_bytes;
  };
  EXPECT_EQ(page_bytes(Released()), size_t{890} * 256);
  std::string text = formats::WriteHfConfig(Released());
  EXPECT_THAT(text, HasSubstr("compress_ratios"));
  formats::ModelConfig without_draft = Released();
  without_draft.num_nextn_predict_layers = 0;
  without_draft.dspark_target_layer_ids.clear();
  EXPECT_EQ(page_bytes(without_draft), size_t{890} * 256);
  const ServingPlan plan = Plan(Options(), {.max_model_len = true}, Budget(uint64_t{1} << 40));
  const auto tokens = static_cast<double>(4 * 1048576);
  EXPECT_NEAR(static_cast<double>(plan.memory.BytesOf("kv pages")) / tokens, 890, 1);
}

TEST(ServingPlan, WeightsAreTheCataloguesBytes) {
  const ServingPlan plan = Plan(Options(), {.max_model_len = true}, Budget(uint64_t{1} << 40));
  uint64_t backbone = 0;
  for (const model::TensorSpec& tensor : model::BuildCatalogue(Released()))
    if (tensor.component == model::Component::kBackbone) backbone += tensor.bytes();
  EXPECT_EQ(plan.memory.mapped_bytes(), backbone);
  EXPECT_EQ(plan.memory.BytesOf("weights, routed experts"), 288'777'830'400u);
  EXPECT_EQ(plan.memory.BytesOf("weights, n-gram tables"), 202'758'032'400u);
}

TEST(ServingPlan, AutomaticSizesAreTheLargestThatFit) {
  const uint64_t weights = 501'382'611'408;
  ServingOptions options = Options();
  const rig::MemoryBudget budget = Budget(weights + 4 * kGiB);
  const ServingPlan longest = Plan(options, {.max_model_len = true}, budget);
  EXPECT_TRUE(longest.verdict.fits);
  const int64_t length = *longest.options.load.stepper.max_model_len;
  EXPECT_EQ(length % model::kPageTokens, 0);
  options.load.stepper.max_model_len = length + model::kPageTokens;
  const ServingPlan longer = Plan(options, {}, budget);
  EXPECT_FALSE(longer.verdict.fits);
  EXPECT_EQ(longer.verdict.remedy->flag, "--max-model-len");
  EXPECT_EQ(longer.verdict.remedy->value, std::to_string(length));

  options.load.stepper.max_model_len = 65536;
  const ServingPlan most = Plan(options, {.max_num_seqs = true}, budget);
  const int sequences = most.options.load.stepper.max_num_seqs;
  EXPECT_GT(sequences, 4);
  EXPECT_EQ(most.options.engine.max_num_seqs, sequences);
  options.load.stepper.max_num_seqs = sequences + 1;
  EXPECT_FALSE(Plan(options, {}, budget).verdict.fits);
}

// Two starts on the same machine plan the same; a pin above the budget is refused with the shortfall.
TEST(ServingPlan, TheSameBudgetGivesTheSamePlanAndAPinAboveItIsRefused) {
  const rig::MemoryBudget budget = Budget(501'382'611'408 + 4 * kGiB);
  const AutomaticSizes automatic{.max_model_len = true};
  EXPECT_EQ(ServingPlanText(Plan(Options(), automatic, budget)),
            ServingPlanText(Plan(Options(), automatic, budget)));
  ServingOptions pinned = Options();
  pinned.load.stepper.kv_tokens = int64_t{64} << 20;
  pinned.load.stepper.max_model_len = 1 << 16;
  const ServingPlan refused = Plan(pinned, {}, budget);
  EXPECT_FALSE(refused.verdict.fits);
  EXPECT_EQ(refused.options.load.stepper.kv_tokens, int64_t{64} << 20);  // never shrunk without a word
  EXPECT_EQ(refused.verdict.remedy->flag, "--max-total-tokens");
  EXPECT_GE(std::stoll(refused.verdict.remedy->value), 1 << 16);  // or no sequence of that length would fit
  const uint64_t short_of = refused.verdict.needed_bytes - budget.bytes;
  EXPECT_THAT(ServingPlanText(refused),
              HasSubstr("(" + WithThousands(short_of) + " bytes) more than the budget"));
}

// A pool smaller than one sequence is refused: no remedy may name it.
TEST(ServingPlan, NoRemedyShrinksThePoolBelowOneSequence) {
  ServingOptions pinned = Options();
  pinned.load.stepper.kv_tokens = int64_t{64} << 20;
  pinned.load.stepper.max_model_len = 1 << 20;
  const ServingPlan refused = Plan(pinned, {}, Budget(501'382'611'408 + 2 * kGiB));
  EXPECT_FALSE(refused.verdict.fits);
  EXPECT_NE(refused.verdict.remedy->flag, "--max-total-tokens");
}

// The refusal of an engine with much in flight named the cache; the plan names what is large.
TEST(ServingPlan, ARefusalNamesTheTermThatIsLarge) {
  ServingOptions options = Options();
  options.load.stepper.max_model_len = 32768;
  options.load.stepper.max_batch_tokens = 65536;
  const ServingPlan plan = Plan(options, {}, Budget(501'382'611'408 + 8 * kGiB));
  EXPECT_FALSE(plan.verdict.fits);
  EXPECT_EQ(plan.verdict.remedy->flag, "--max-num-batched-tokens");
  uint64_t scratch = 0;
  for (const PlannedMemory& line : plan.memory.lines())
    if (line.name.starts_with("scratch, ")) scratch += line.bytes;
  EXPECT_GT(scratch, 40 * kGiB);
  EXPECT_LT(plan.memory.BytesOf("kv pages"), kGiB);
  const std::string text = ServingPlanText(plan);
  EXPECT_THAT(text, HasSubstr("what would fit: --max-num-batched-tokens "));
  for (const char* term :
       {"weights, routed experts ", "kv pages ", "window states ", "scratch, activations "})
    EXPECT_THAT(text, HasSubstr(std::string("\n") + term)) << term;
}

// What the search for the largest size relies on.
TEST(ServingPlan, NoLineShrinksWhenASettingGrows) {
  std::mt19937 random(1);
  const formats::ModelConfig config = model::MakeSyntheticModel(model::SyntheticPreset::kLong)->config;
  const auto lines = [&](const ServingOptions& options) {
    std::map<std::string, uint64_t> bytes;
    const auto plan = PlanServing(config, options, {}, Budget(1));
    for (const PlannedMemory& line : plan->memory.lines()) bytes[line.name] = line.bytes;
    return bytes;
  };
  for (int round = 0; round < 40; ++round) {
    ServingOptions options = Options(1 + static_cast<int>(random() % 16));
    options.load.stepper.max_model_len = 256 + random() % 100'000;
    options.load.stepper.max_num_seqs = 1 + static_cast<int>(random() % 64);
    options.load.stepper.max_batch_tokens = 1 + random() % 4096;
    ServingOptions grown = options;
    switch (random() % 3) {
      case 0:
        *grown.load.stepper.max_model_len += 256;
        break;
      case 1:
        grown.load.stepper.max_num_seqs += 1;
        break;
      default:
        grown.load.stepper.max_batch_tokens += 64;
    }
    const auto before = lines(options);
    const auto after = lines(grown);
    for (const auto& [name, bytes] : after) EXPECT_GE(bytes, before.at(name)) << name;
  }
}

}  // namespace
}  // namespace millrace::app
