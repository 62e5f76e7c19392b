#include "app/context_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "model/synthetic_checkpoint.h"
#include "support/counted_heap.h"

namespace millrace::app {
namespace {

namespace fs = std::filesystem;
using ::millrace::testing::counted_heap;

class ContextRunTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = fs::path(::testing::TempDir()) / "context_run_test";
    fs::remove_all(dir_);
    rig::Team team(1);
    const auto written =
        model::WriteSyntheticCheckpoint({.preset = model::SyntheticPreset::kLong, .dir = dir_}, team.pool());
    ASSERT_TRUE(written.ok()) << written.error().message();
  }
  static void TearDownTestSuite() { fs::remove_all(dir_); }

  static fs::path dir_;
};

fs::path ContextRunTest::dir_;

// Scratch has the size that was planned, however deep the prompt: once all its kinds of steps have run,
// reading on allocates nothing that stays and nothing that goes.
TEST_F(ContextRunTest, MemoryDoesNotGrowWithDepth) {
  rig::Team team(2);
  int64_t peak_at_first = 0;
  std::vector<int64_t> peaks;
  const auto run =
      RunContext(dir_, team, {.prefill_tokens = 65536, .decode_tokens = 4}, [&](const ContextProgress& at) {
        if (at.depth == 2048) {
          peak_at_first = counted_heap.peak_bytes;
          counted_heap.ResetPeak();
        }
        if (at.depth > 2048) {
          peaks.push_back(counted_heap.peak_bytes);
          counted_heap.ResetPeak();
        }
      });
  ASSERT_TRUE(run.ok()) << run.error().message();
  ASSERT_GE(peaks.size(), 5u) << "4,096 to 32,768 and the end";
  for (const int64_t peak : peaks) EXPECT_LE(peak, peak_at_first + 16384);
  // The pool is whole huge pages, of which the last is partly used.
  EXPECT_LE(run->memory.held_bytes, run->memory.planned_bytes);
  EXPECT_GT(run->memory.held_bytes + (2u << 20), run->memory.planned_bytes);
  // Beside the plan: what the checkpoint's index, the plan's tables and the allocator keep.
  EXPECT_LT(run->memory.grown_bytes, run->memory.planned_bytes + (24u << 20));
  EXPECT_GT(run->memory.grown_bytes, run->memory.planned_bytes / 4);
}

TEST_F(ContextRunTest, ComparesTheDepthWithAShortPrompt) {
  rig::Team team(2);
  const auto run = RunContext(dir_, team, {.prefill_tokens = 8192, .decode_tokens = 4, .chunk_tokens = 128},
                              [](const auto&) {});
  ASSERT_TRUE(run.ok()) << run.error().message();
  ASSERT_EQ(run->rows.size(), 2u);
  EXPECT_EQ(run->rows[0].shape, "128 tokens at a time at depth 7424 over 1024");
  EXPECT_EQ(run->rows[1].shape, "1 tokens at a time at depth 8192 over 1792");
  for (const rig::BenchRow& row : run->rows) {
    EXPECT_GT(row.value, 0) << row.name;
    EXPECT_LT(row.ratio, 3) << row.name;
  }
}

TEST_F(ContextRunTest, RefusesWhatDoesNotFit) {
  rig::Team team(1);
  const auto refusal = [&](const ContextRunOptions& options) {
    const auto run = RunContext(dir_, team, options, [](const auto&) {});
    return run.ok() ? "accepted" : run.error().message();
  };
  EXPECT_NE(refusal({.prefill_tokens = 4000}).find("with chunks of 512 it must be at least 4096"),
            std::string::npos);
  EXPECT_NE(refusal({.prefill_tokens = int64_t{1} << 21}).find("max_position_embeddings"), std::string::npos);
}

}  // namespace
}  // namespace millrace::app
