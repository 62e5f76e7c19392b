#include "api/answer_remedies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace millrace::api {
namespace {

// The largest number from `least` and below `end` that `fits`, as all smaller ones do; least - 1: none.
template <typename Fits>
int64_t Largest(int64_t least, int64_t end, Fits fits) {
  while (least < end) {
    const int64_t middle = least + (end - least) / 2;
    if (fits(middle)) {
      least = middle + 1;
    } else {
      end = middle;
    }
  }
  return least - 1;
}

class Remedies {
 public:
  Remedies(const AnswerShape& shape, const RequestFields& fields, uint64_t most)
      : shape_(shape), fields_(fields), most_(most) {}

  void LowerNumbers() {
    std::vector<std::string> lower;
    const int64_t tokens =
        Largest(1, shape_.longest(), [&](int64_t limit) { return Fits(WithLimit(limit)); });
    if (tokens >= 1) {
      const std::string least = tokens < fields_.min_tokens ? " and min_tokens" : "";
      lower.push_back(fmt::format("{}{} to {}", fields_.limit, least, tokens));
    }
    AnswerShape other = shape_;
    const int64_t n = Largest(1, shape_.choices_per_prompt, [&](int64_t choices) {
      other.choices_per_prompt = static_cast<int>(choices);
      return Fits(other);
    });
    if (n >= 1) lower.push_back(fmt::format("n to {}", n));
    other = shape_;
    const int64_t alternatives = Largest(0, shape_.logprobs.value_or(0), [&](int64_t top) {
      other.logprobs = static_cast<int>(top);
      return Fits(other);
    });
    if (alternatives >= 0) lower.push_back(fmt::format("{} to {}", fields_.logprobs, alternatives));
    if (!lower.empty()) remedies_.push_back(fmt::format("lower {}", fmt::join(lower, " or ")));
  }

  void AskForLess(const FormatMemory& streamed) {
    AnswerShape other = shape_;
    // The longest ones: it may be these that the client sends.
    std::ranges::sort(other.limits, std::greater());
    const std::vector<int64_t> limits = other.limits;
    const int64_t prompts = Largest(1, std::ssize(limits), [&](int64_t n) {
      other.limits.assign(limits.begin(), limits.begin() + n);
      return Fits(other);
    });
    if (prompts == 1) remedies_.emplace_back("send one prompt at a time");
    if (prompts > 1) remedies_.push_back(fmt::format("send no more than {} prompts at once", prompts));
    other = shape_;
    other.logprobs.reset();
    if (shape_.logprobs && Fits(other)) remedies_.emplace_back("ask for no log-probabilities");
    other = shape_;
    other.stream = true;
    other.format = streamed;
    if (!shape_.stream && Fits(other)) remedies_.emplace_back("stream the answer");
  }

  // What is there whatever the answer becomes.
  void ShortenRequest() {
    AnswerShape other = shape_;
    other.fixed_bytes_per_sequence = 0;
    if (Fits(other)) remedies_.emplace_back("send fewer or shorter stop strings");
    other = shape_;
    other.fixed_bytes = 0;
    if (Fits(other)) remedies_.emplace_back("declare fewer tools");
    other = shape_;
    other.format.fixed_bytes = 0;
    if (Fits(other))
      remedies_.emplace_back(
          "shorten what the answer repeats (instructions and tools, or the prompt with echo)");
  }

  bool empty() const { return remedies_.empty(); }

  std::string Text() {
    remedies_.push_back(fmt::format("have the server started with --max-answers-size {} at least",
                                    2 * BytesToReserve(shape_)));
    return fmt::format("{}", fmt::join(remedies_, ", or "));
  }

 private:
  AnswerShape WithLimit(int64_t tokens) const {
    AnswerShape other = shape_;
    for (int64_t& limit : other.limits) limit = std::min(limit, tokens);
    return other;
  }

  bool Fits(const AnswerShape& shape) const { return BytesToReserve(shape) <= most_; }

  const AnswerShape& shape_;
  const RequestFields& fields_;
  const uint64_t most_;
  std::vector<std::string> remedies_;
};

}  // namespace

std::string RemediesFor(const AnswerShape& shape, const FormatMemory& streamed, const RequestFields& fields,
                        uint64_t most) {
  Remedies remedies(shape, fields, most);
  remedies.LowerNumbers();
  remedies.AskForLess(streamed);
  if (remedies.empty()) remedies.ShortenRequest();
  return remedies.Text();
}

}  // namespace millrace::api
