#include "rig/plan_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"

namespace millrace::rig {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 100 bytes of weights, 50 of the process, a byte for each token of each sequence, 10 for each sequence.
Result<MemoryPlan> Model(std::span<const int64_t> values) {
  const auto tokens = static_cast<uint64_t>(values[0]);
  const auto sequences = static_cast<uint64_t>(values[1]);
  return MemoryPlan({{"weights", 100, "", true},
                     {"process", 50},
                     {"pages", tokens * sequences, "both"},
                     {"states", 10 * sequences, "sequences"}});
}

std::vector<PlanSetting> Settings(int64_t tokens, int64_t sequences) {
  return {{"--max-model-len", "tokens", tokens, 2, 1000, 8},
          {"--max-num-seqs", "sequences", sequences, 1, 64, 1}};
}

MemoryBudget Budget(uint64_t bytes, bool of_machine = false) {
  return {bytes, "--ram", of_machine};
}

TEST(LargestThatFits, IsTheLastStepThatFits) {
  for (uint64_t budget = 160; budget < 1400; ++budget) {
    const auto settings = Settings(8, 1);
    const auto found = LargestThatFits(Model, settings, 0, Budget(budget));
    ASSERT_TRUE(found.ok());
    // 160 bytes stand before the first token.
    std::optional<int64_t> expected;
    if (budget >= 162) expected = std::max<int64_t>(2, static_cast<int64_t>(budget - 160) / 8 * 8);
    if (budget >= 1160) expected = 1000;
    EXPECT_EQ(*found, expected) << budget;
  }
}

TEST(SizeToFit, TheFirstSettingComesBeforeTheSecond) {
  std::vector<PlanSetting> settings = Settings(1, 4);
  const std::vector<size_t> both = {0, 1};
  const auto plan = SizeToFit(Model, settings, both, Budget(160 + 400));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(settings[0].value, 400);
  EXPECT_EQ(settings[1].value, 1);
  (void)SizeToFit(Model, settings, both, Budget(160 + 1000 + 2 * 1010));
  EXPECT_EQ(settings[0].value, 1000);
  EXPECT_EQ(settings[1].value, 3);
}

TEST(SizeToFit, AMachineThatIsTooSmallForTheWeightsCountsWithoutThem) {
  std::vector<PlanSetting> settings = Settings(1, 1);
  const std::vector<size_t> first = {0};
  (void)SizeToFit(Model, settings, first, Budget(140, /*of_machine=*/true));
  EXPECT_EQ(settings[0].value, 80);
  (void)SizeToFit(Model, settings, first, Budget(240, true));  // here they fit, and stay
  EXPECT_EQ(settings[0].value, 80);
  (void)SizeToFit(Model, settings, first, Budget(140));  // nothing fits
  EXPECT_EQ(settings[0].value, 2);
}

TEST(PlanVerdict, NamesWhatBindsAndWhatTheNextStepCosts) {
  const auto verdict = Judge(Model, Settings(80, 2), Budget(335));
  ASSERT_TRUE(verdict.ok());
  EXPECT_TRUE(verdict->fits);
  EXPECT_EQ(verdict->needed_bytes, 330u);
  ASSERT_NE(verdict->binding(), nullptr);
  EXPECT_EQ(verdict->binding()->flag, "--max-model-len");
  const std::string text = VerdictText(*verdict);
  EXPECT_THAT(text, HasSubstr("headroom 5 B"));
  EXPECT_THAT(text, HasSubstr("the next 8 tokens of --max-model-len would need 16 B: too much"));
  EXPECT_THAT(text, HasSubstr("the next 1 sequence of --max-num-seqs would need 90 B: too much"));

  const auto roomy = Judge(Model, Settings(1000, 2), Budget(100'000));
  EXPECT_EQ(roomy->binding(), nullptr);
  EXPECT_THAT(VerdictText(*roomy), HasSubstr("--max-model-len is at its most"));
}

TEST(PlanVerdict, GivesTheOneSettingThatKeepsMostOfItsValue) {
  const auto remedy = [](int64_t tokens, int64_t sequences, uint64_t budget) {
    const auto verdict = Judge(Model, Settings(tokens, sequences), Budget(budget));
    EXPECT_FALSE(verdict->fits);
    EXPECT_THAT(VerdictText(*verdict), HasSubstr("does not fit"));
    return verdict->remedy->flag + " " + verdict->remedy->value;
  };
  EXPECT_EQ(remedy(100, 10, 150 + 1100 - 100), "--max-num-seqs 9");
  EXPECT_EQ(remedy(100, 10, 150 + 1100 - 10), "--max-model-len 96");
  EXPECT_EQ(remedy(100, 10, 120), "--ram 1MiB");  // not even the least
}

TEST(PlanVerdict, AMachineWithoutRoomForTheWeightsIsTold) {
  const auto verdict = Judge(Model, Settings(80, 1), Budget(200, /*of_machine=*/true));
  EXPECT_TRUE(verdict->fits);
  EXPECT_THAT(VerdictText(*verdict), HasSubstr("of 100 B mapped, 40 B will be read from the drive"));
  const auto asked = Judge(Model, Settings(80, 1), Budget(200));
  EXPECT_FALSE(asked->fits);
  const auto hopeless = Judge(Model, Settings(80, 1), Budget(20, true));
  EXPECT_FALSE(hopeless->fits);
  EXPECT_FALSE(hopeless->remedy.has_value());
  EXPECT_THAT(VerdictText(*hopeless), HasSubstr("too little memory"));
}

TEST(PlanTable, ListsEveryLineAndTheSums) {
  const std::string table = PlanTable(*Model(std::vector<int64_t>{80, 2}));
  EXPECT_THAT(table, HasSubstr("pages                               160 B                 160  both\n"));
  EXPECT_THAT(table, HasSubstr("total                               330 B                 330\n"));
  EXPECT_THAT(table, Not(HasSubstr(" \n")));
}

}  // namespace
}  // namespace millrace::rig
