#include "api/answer_remedies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/answer_memory.h"
#include "base/units.h"

namespace millrace::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

AnswerShape Shape(std::vector<int64_t> limits, int n, std::optional<int> logprobs) {
  AnswerShape shape;
  shape.limits = std::move(limits);
  shape.choices_per_prompt = n;
  shape.logprobs = logprobs;
  return shape;
}

TEST(AnswerNeeds, AStreamsLogprobsWaitForNoMoreTokensThanThereAre) {
  AnswerShape one = Shape({1}, 1, 20);
  AnswerShape many = Shape({100'000}, 1, 20);
  one.stream = many.stream = true;
  EXPECT_EQ(256 * NeedsOf(one).fixed_bytes, NeedsOf(many).fixed_bytes);
  EXPECT_EQ(BytesToReserve(one), 0u) << "within what the plan has for every request";
  EXPECT_GT(BytesToReserve(many), 0u);
}

TEST(AnswerNeeds, WhatIsLittleAndFixedIsPlanned) {
  AnswerShape shape = Shape({100}, 1, std::nullopt);
  shape.fixed_bytes = kAnswerBytesPerRequest;
  EXPECT_EQ(BytesToReserve(shape), 0u);
  shape.format.fixed_bytes = 1;
  EXPECT_EQ(BytesToReserve(shape), 1u);
}

// Each is enough by itself, and the next larger number is not.
TEST(AnswerRemedies, EveryNumberIsTheMostThatFits) {
  const AnswerShape shape = Shape({500, 500}, 4, 20);
  const uint64_t most = BytesToReserve(Shape({500, 500}, 2, 20));
  const std::string text = RemediesFor(shape, {}, {}, most);
  EXPECT_THAT(text, HasSubstr(" or n to 2 or top_logprobs to "));
  const auto number = [&](const std::string& word) {
    const size_t at = text.find(word);
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + word.size()));
  };
  const int64_t limit = number("lower max_tokens to ");
  EXPECT_LE(BytesToReserve(Shape({limit, limit}, 4, 20)), most);
  EXPECT_GT(BytesToReserve(Shape({limit + 1, limit + 1}, 4, 20)), most);
  const auto top = static_cast<int>(number("top_logprobs to "));
  EXPECT_LE(BytesToReserve(Shape({500, 500}, 4, top)), most);
  EXPECT_GT(BytesToReserve(Shape({500, 500}, 4, top + 1)), most);
  EXPECT_THAT(text, HasSubstr(", or send one prompt at a time"));
  EXPECT_THAT(text, HasSubstr(", or stream the answer"));
  EXPECT_EQ(number("--max-answers-size ") / 2, static_cast<int64_t>(BytesToReserve(shape)));
}

TEST(AnswerRemedies, WhatDoesNotHelpIsNotOffered) {
  AnswerShape shape = Shape({500}, 1, std::nullopt);
  shape.format = {.fixed_bytes = 10 * kMiB, .text_copies = 4, .keeps_stream = true};
  const std::string text = RemediesFor(shape, shape.format, {}, kMiB);
  EXPECT_THAT(text, Not(HasSubstr("lower")));
  EXPECT_THAT(text, Not(HasSubstr("stream")));
  EXPECT_THAT(text, Not(HasSubstr("tools are")));
  EXPECT_THAT(text, HasSubstr("shorten what the answer repeats"));
  // One token is too much: no limit helps.
  AnswerShape tight = Shape({500}, 1, 20);
  EXPECT_THAT(RemediesFor(tight, {}, {}, 100), Not(HasSubstr("max_tokens")));
  // min_tokens may not stand above the limit.
  EXPECT_THAT(RemediesFor(tight, {}, {.limit = "max_completion_tokens", .min_tokens = 400}, 500'000),
              HasSubstr("lower max_completion_tokens and min_tokens to 1"));
}

}  // namespace
}  // namespace millrace::api
