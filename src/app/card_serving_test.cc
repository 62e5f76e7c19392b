#include "app/card_serving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "app/plan_report.h"
#include "base/units.h"

namespace millrace::app {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMillion = 1 << 20;

formats::ModelConfig Released() {
  return *formats::ReadHfConfig(MILLRACE_SOURCE_DIR "/tests/data/config/released.json");
}

rig::CardRigOptions Unequal() {
  return {.device_bytes = {96 * kGiB, 84 * kGiB, 84 * kGiB, 84 * kGiB}};
}

ServingOptions Sizes(int64_t max_model_len, int max_num_seqs) {
  ServingOptions options;
  options.load.stepper.max_model_len = max_model_len;
  options.load.stepper.max_num_seqs = max_num_seqs;
  return options;
}

CardServingPlan Plan(const ServingOptions& options, const AutomaticSizes& automatic,
                     const rig::CardRigOptions& cards) {
  auto plan = PlanCards(Released(), options, automatic, cards);
  EXPECT_TRUE(plan.ok()) << plan.error().message();
  return *std::move(plan);
}

uint64_t BytesOf(const rig::CardPlan& card, std::string_view name) {
  for (const PlannedMemory& line : card.lines)
    if (line.name == name) return line.bytes;
  return 0;
}

// Of a million tokens each; a page has a few bytes of bookkeeping.
void ExpectPages(const CardServingPlan& plan, uint64_t sessions) {
  for (const rig::CardPlan& card : plan.rig.cards) {
    EXPECT_GE(BytesOf(card, "kv pages"), sessions * 890 * kMiB);
    EXPECT_LT(BytesOf(card, "kv pages"), sessions * 891 * kMiB);
  }
}

// States and tails are those of the sessions counted: with states for 4 the pages alone would leave room for
// 13.
TEST(CardServing, SessionsAreTheLargestNumberWhoseStatesAndTailsFitToo) {
  const CardServingPlan four = Plan(Sizes(kMillion, 4), {}, Unequal());
  EXPECT_TRUE(four.fits());
  EXPECT_EQ(four.sessions, 11);
  EXPECT_EQ(four.pool_tokens, 4 * kMillion);
  EXPECT_EQ(four.session_bytes, 890 * kMiB);
  const CardServingPlan most = Plan(Sizes(kMillion, 4), {.max_num_seqs = true}, Unequal());
  EXPECT_TRUE(most.fits());
  EXPECT_EQ(most.serving.options.load.stepper.max_num_seqs, 11);
  EXPECT_EQ(most.sessions, 11);
  ExpectPages(most, 11);
  for (const char* per_sequence : {"window states", "prefix tails"}) {
    EXPECT_GT(BytesOf(most.rig.cards[1], per_sequence), BytesOf(four.rig.cards[1], per_sequence))
        << per_sequence;
  }
  EXPECT_TRUE(Plan(Sizes(kMillion, 11), {}, Unequal()).fits());
  EXPECT_FALSE(Plan(Sizes(kMillion, 12), {}, Unequal()).fits());
}

TEST(CardServing, TheLongestContextIsThatOfTheSessionsGiven) {
  const CardServingPlan longest = Plan(Sizes(kMillion, 16), {.max_model_len = true}, Unequal());
  EXPECT_TRUE(longest.fits());
  EXPECT_LT(longest.session_tokens, kMillion);
  EXPECT_EQ(longest.sessions, 16);
  EXPECT_FALSE(Plan(Sizes(longest.session_tokens + 256, 16), {}, Unequal()).fits());
}

TEST(CardServing, ADefaultPoolOrAGivenOneIsWhatIsPlanned) {
  ServingOptions options = Sizes(kMillion, 4);
  options.load.stepper.kv_tokens = 3 * kMillion;
  const CardServingPlan plan = Plan(options, {}, Unequal());
  EXPECT_EQ(plan.pool_tokens, 3 * kMillion);
  ExpectPages(plan, 3);
  EXPECT_EQ(plan.sessions, 3);
  options.load.stepper.kv_tokens = 100;  // a page
  options.load.stepper.max_model_len = 100;
  EXPECT_EQ(Plan(options, {}, Unequal()).sessions, 1);
}

TEST(CardServing, ARefusalNamesCardTermsShortfallAndTheOneChange) {
  const CardServingPlan plan = Plan(Sizes(kMillion, 12), {}, Unequal());
  ASSERT_FALSE(plan.fits());
  const std::string text = CardServingText(plan);
  const int64_t short_of = -plan.rig.cards[1].headroom_bytes();
  EXPECT_THAT(text, HasSubstr("does not fit: card 1 lacks " + HumanBytes(static_cast<uint64_t>(short_of))));
  EXPECT_THAT(text, HasSubstr("(" + WithThousands(static_cast<uint64_t>(short_of)) + " bytes)"));
  EXPECT_THAT(text, HasSubstr("weights, routed experts (64.43 GiB), kv pages (10.43 GiB)"));
  ASSERT_THAT(plan.remedy, ::testing::StartsWith("--max-model-len "));
  const int64_t length = std::stoll(plan.remedy.substr(plan.remedy.find(' ')));
  EXPECT_TRUE(Plan(Sizes(length, 12), {}, Unequal()).fits());
}

// No session is short enough where not even the weights have room.
TEST(CardServing, WeightsWithoutRoomNameWhatMayBeLeftOutOrMoreCards) {
  const AutomaticSizes context{.max_model_len = true};
  rig::CardRigOptions tight{.device_bytes = std::vector<uint64_t>(4, 75 * kGiB)};
  tight.reserve_bytes = 2 * kGiB;
  const CardServingPlan vision = Plan(Sizes(kMillion, 1), context, tight);
  EXPECT_FALSE(vision.fits());
  EXPECT_EQ(vision.sessions, 0);
  EXPECT_THAT(vision.remedy, ::testing::StartsWith("--language-model-only (then --max-model-len "));
  tight.vision = false;
  EXPECT_TRUE(Plan(Sizes(kMillion, 1), context, tight).fits());

  rig::CardRigOptions small{.device_bytes = {48 * kGiB, 24 * kGiB, 24 * kGiB}};
  const CardServingPlan more = Plan(Sizes(kMillion, 1), context, small);
  EXPECT_THAT(more.remedy, HasSubstr(" more cards of 24.00 GiB (then --max-model-len "));
  const int n = std::stoi(more.remedy);
  small.device_bytes.insert(small.device_bytes.end(), static_cast<size_t>(n), 24 * kGiB);
  EXPECT_TRUE(Plan(Sizes(kMillion, 1), context, small).fits());
  small.device_bytes.pop_back();
  EXPECT_FALSE(Plan(Sizes(kMillion, 1), context, small).fits());

  // Dense tensors alone are more than such a card has.
  small.device_bytes.assign(3, 4 * kGiB);
  const CardServingPlan larger = Plan(Sizes(kMillion, 1), context, small);
  EXPECT_THAT(larger.remedy, HasSubstr(" GiB more on every card"));
  for (uint64_t& bytes : small.device_bytes) bytes -= static_cast<uint64_t>(larger.rig.headroom_bytes());
  EXPECT_TRUE(Plan(Sizes(kMillion, 1), context, small).fits());
  small.device_bytes.front() -= kGiB;
  EXPECT_FALSE(Plan(Sizes(kMillion, 1), context, small).fits());
}

}  // namespace
}  // namespace millrace::app
