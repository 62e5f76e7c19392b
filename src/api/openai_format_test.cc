#include "api/openai_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace millrace::api {
namespace {

using ::testing::HasSubstr;

// Of one token that has itself among its alternatives.
std::string CompletionOf(float logprob) {
  std::vector<FinishedChoice> choices(1);
  const TokenText text{"a", logprob};
  choices[0].content = "a";
  choices[0].content_tokens.push_back({.chosen = text, .top = {text, {"b", -2}}});
  return MakeOpenAiCompletionFormat(OpenAiHead(), {})->Whole(choices, {});
}

TEST(OpenAiFormat, ACompletionSpellsALogprobOneWay) {
  const std::string answer = CompletionOf(-1.007192F);
  EXPECT_THAT(answer, HasSubstr(R"("token_logprobs":[-1.007192],"top_logprobs":[{"a":-1.007192,"b":-2.0}])"));
}

TEST(OpenAiFormat, WhatIsNoNumberInJsonIsTheFloor) {
  for (const float logprob :
       {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(CompletionOf(logprob),
                HasSubstr(R"("token_logprobs":[-9999.0],"top_logprobs":[{"a":-9999.0,"b":-2.0}])"));
  }
}

}  // namespace
}  // namespace millrace::api
