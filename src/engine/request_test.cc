#include "engine/request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace millrace::engine {
namespace {

SamplingParams Good() {
  SamplingParams sampling;
  sampling.max_tokens = 1;
  return sampling;
}

TEST(ValidateSampling, AcceptsTheEndsOfEveryRange) {
  SamplingParams sampling = Good();
  EXPECT_TRUE(ValidateSampling(sampling, 10).ok());
  sampling.temperature = 0;
  sampling.top_p = 1e-30f;
  sampling.top_k = std::numeric_limits<int32_t>::max();
  sampling.min_p = 1;
  sampling.logprobs = kMaxLogprobs;
  sampling.stop_token_ids = {0, 9};
  sampling.min_tokens = 1;
  sampling.presence_penalty = -2;
  sampling.frequency_penalty = 2;
  sampling.repetition_penalty = 1e-30f;
  sampling.logit_bias = {{0, -100}, {9, 100}, {9, 0}};
  EXPECT_TRUE(ValidateSampling(sampling, 10).ok());
}

TEST(ValidateSampling, NamesFieldValueAndWhatIsAccepted) {
  struct Case {
    std::function<void(SamplingParams&)> spoil;
    const char* message;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Case cases[] = {
      {[](auto& s) { s.temperature = -0.5f; },
       "temperature is -0.5; it must be a finite number of at least 0 (0: greedy)"},
      {[=](auto& s) { s.temperature = nan; },
       "temperature is nan; it must be a finite number of at least 0 (0: greedy)"},
      {[](auto& s) { s.temperature = std::numeric_limits<float>::infinity(); },
       "temperature is inf; it must be a finite number of at least 0 (0: greedy)"},
      {[](auto& s) { s.top_p = 0; }, "top_p is 0; it must be greater than 0 and at most 1 (1: off)"},
      {[](auto& s) { s.top_p = 1.5f; }, "top_p is 1.5; it must be greater than 0 and at most 1 (1: off)"},
      {[=](auto& s) { s.top_p = nan; }, "top_p is nan; it must be greater than 0 and at most 1 (1: off)"},
      {[](auto& s) { s.top_k = -1; }, "top_k is -1; it must be at least 1, or 0 to switch it off"},
      {[](auto& s) { s.min_p = 1.25f; }, "min_p is 1.25; it must be from 0 (off) to 1"},
      {[=](auto& s) { s.min_p = nan; }, "min_p is nan; it must be from 0 (off) to 1"},
      {[](auto& s) { s.max_tokens = 0; }, "max_tokens is 0; it must be at least 1"},
      {[](auto& s) { s.logprobs = 21; }, "logprobs is 21; it must be from 0 to 20"},
      {[](auto& s) { s.logprobs = -1; }, "logprobs is -1; it must be from 0 to 20"},
      {[](auto& s) {
         s.stop_token_ids = {3, 10};
       },
       "stop_token_ids is [... 10 ...]; it must be ids of the vocabulary, 0 to 9"},
      {[](auto& s) { s.presence_penalty = 2.5f; },
       "presence_penalty is 2.5; it must be from -2 to 2 (0: off)"},
      {[=](auto& s) { s.presence_penalty = nan; },
       "presence_penalty is nan; it must be from -2 to 2 (0: off)"},
      {[](auto& s) { s.frequency_penalty = -3; },
       "frequency_penalty is -3; it must be from -2 to 2 (0: off)"},
      {[](auto& s) { s.repetition_penalty = 0; },
       "repetition_penalty is 0; it must be a finite number greater than 0 (1: off)"},
      {[](auto& s) { s.repetition_penalty = std::numeric_limits<float>::infinity(); },
       "repetition_penalty is inf; it must be a finite number greater than 0 (1: off)"},
      {[](auto& s) {
         s.logit_bias = {{3, 1}, {10, 0.5f}};
       },
       "logit_bias is {... 10: 0.5 ...}; it must be for ids of the vocabulary, 0 to 9"},
      {[](auto& s) {
         s.logit_bias = {{3, -100.5f}};
       },
       "logit_bias is {... 3: -100.5 ...}; it must be from -100 to 100 for each token"},
      {[=](auto& s) {
         s.logit_bias = {{3, nan}};
       },
       "logit_bias is {... 3: nan ...}; it must be from -100 to 100 for each token"},
      {[](auto& s) { s.min_tokens = 2; }, "min_tokens is 2; it must be from 0 to max_tokens, 1"},
      {[](auto& s) { s.min_tokens = -1; }, "min_tokens is -1; it must be from 0 to max_tokens, 1"},
  };
  for (const Case& c : cases) {
    SamplingParams sampling = Good();
    c.spoil(sampling);
    const Status status = ValidateSampling(sampling, 10);
    ASSERT_FALSE(status.ok()) << c.message;
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().message(), c.message);
  }
}

TEST(ValidatePrompt, LeavesRoomForOneToken) {
  EXPECT_TRUE(ValidatePrompt(std::vector<TokenId>{0, 9, 5}, 10, 4).ok());
  const Status full = ValidatePrompt(std::vector<TokenId>{0, 9, 5}, 10, 3);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(
      full.error().message(),
      "prompt has 3 tokens; this model's maximum context length is 3 tokens, prompt and answer together, "
      "so a prompt may have at most 2");
  EXPECT_EQ(ValidatePrompt({}, 10, 3).error().message(), "prompt has no tokens; it must have at least one");
  EXPECT_EQ(ValidatePrompt(std::vector<TokenId>{0, 10}, 10, 9).error().message(),
            "prompt token 1 is id 10; ids of the vocabulary are 0 to 9");
  EXPECT_FALSE(ValidatePrompt(std::vector<TokenId>{-1}, 10, 9).ok());
}

}  // namespace
}  // namespace millrace::engine
