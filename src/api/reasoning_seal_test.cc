#include "api/reasoning_seal.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace millrace::api {
namespace {

TEST(ReasoningSeal, GivesBackWhatItSealed) {
  std::string text;
  for (int length = 0; length < 70; ++length) {
    EXPECT_EQ(UnsealReasoning(SealReasoning(text)), text) << length;
    text += static_cast<char>(' ' + length);
  }
  EXPECT_EQ(UnsealReasoning(SealReasoning("\u00e9\u4e2d\U0001F600\n\"")), "\u00e9\u4e2d\U0001F600\n\"");
}

TEST(ReasoningSeal, KnowsNothingThatItDidNotMake) {
  for (const char* foreign :
       {"", "gAAAAABodGhlcg", "millrace-reasoning-1-", "millrace-reasoning-1-0123456789abcdefAAAA"})
    EXPECT_EQ(UnsealReasoning(foreign), std::nullopt) << foreign;
  const std::string sealed = SealReasoning("Ones: 7+8=15.");
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string damaged = sealed;
    damaged[i] = damaged[i] == 'x' ? 'y' : 'x';
    const std::optional<std::string> text = UnsealReasoning(damaged);
    // The last digit has bits to spare.
    EXPECT_TRUE(!text || *text == "Ones: 7+8=15.") << damaged;
    EXPECT_EQ(UnsealReasoning(sealed.substr(0, i)), std::nullopt) << i;
  }
}

}  // namespace
}  // namespace millrace::api
