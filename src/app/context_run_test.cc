#include "app/context_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <vector>

#include "model/synthetic_checkpoint.h"

// Everything that this program allocates is counted, whoever asks for it.
namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

constexpr size_t kHeader = 64;  // keeps any alignment asked for in this repository

void* CountedAllocate(size_t bytes) {
  void* const block = std::aligned_alloc(kHeader, (bytes + 2 * kHeader - 1) / kHeader * kHeader);
  if (block == nullptr) throw std::bad_alloc();
  *static_cast<size_t*>(block) = bytes;
  const int64_t live = live_bytes += static_cast<int64_t>(bytes);
  int64_t peak = peak_bytes.load();
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return static_cast<char*>(block) + kHeader;
}

void CountedFree(void* memory) {
  if (memory == nullptr) return;
  void* const block = static_cast<char*>(memory) - kHeader;
  live_bytes -= static_cast<int64_t>(*static_cast<size_t*>(block));
  std::free(block);
}

}  // namespace

void* operator new(size_t bytes) {
  return CountedAllocate(bytes);
}
void* operator new(size_t bytes, std::align_val_t) {
  return CountedAllocate(bytes);
}
void operator delete(void* memory) noexcept {
  CountedFree(memory);
}
void operator delete(void* memory, size_t) noexcept {
  CountedFree(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  CountedFree(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  CountedFree(memory);
}

namespace millrace::app {
namespace {

namespace fs = std::filesystem;

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
          peak_at_first = peak_bytes;
          peak_bytes = live_bytes.load();
        }
        if (at.depth > 2048) {
          peaks.push_back(peak_bytes);
          peak_bytes = live_bytes.load();
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
