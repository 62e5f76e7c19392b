#include "kernels/peak_loops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/testing_targets.h"

namespace millrace::kernels {
namespace {

TEST(StreamRead, ReadsEveryWord) {
  constexpr size_t kWords = 4 * kStreamBlock / 8;
  struct alignas(64) Memory {
    uint64_t words[kWords];
  };
  Memory memory;
  for (size_t i = 0; i < kWords; ++i) memory.words[i] = i * 0x9E3779B97F4A7C15u;
  uint64_t expected = 0;
  for (const uint64_t word : memory.words) expected ^= word;
  const auto* bytes = reinterpret_cast<const std::byte*>(memory.words);
  ForEachTarget([&] {
    EXPECT_EQ(StreamRead(bytes, sizeof(memory)), expected);
    EXPECT_EQ(StreamRead(bytes, 0), 0u);
    for (size_t i = 0; i < kWords; i += 5) {
      memory.words[i] ^= 1;
      EXPECT_EQ(StreamRead(bytes, sizeof(memory)), expected ^ 1) << "word " << i;
      memory.words[i] ^= 1;
    }
  });
}

TEST(PeakLoops, CountWhatTheyDo) {
  ForEachTarget([] {
    EXPECT_GT(FloatPeakLoop(1), 0);
    EXPECT_EQ(FloatPeakLoop(300), 300 * FloatPeakLoop(1));
    EXPECT_GT(Int8PeakLoop(1), 0);
    EXPECT_EQ(Int8PeakLoop(300), 300 * Int8PeakLoop(1));
    EXPECT_FALSE(std::string(Int8PeakSequence()).empty());
  });
}

TEST(PeakLoops, NameTheSetThatDispatchChooses) {
  for (const int64_t target : RunnableTargets()) {
    const ScopedTarget scope(target);
    EXPECT_STREQ(Int8InstructionSet(), hwy::TargetName(target));
    const int64_t floats = target == HWY_AVX3_DL ? HWY_AVX3 : target;
    EXPECT_STREQ(FloatInstructionSet(), hwy::TargetName(floats));
  }
}

}  // namespace
}  // namespace millrace::kernels
