#include "api/answer_needs.h"

#include <algorithm>

#include "api/answer_memory.h"
#include "api/finished_choice.h"
#include "api/logprobs_json.h"
#include "engine/request.h"

namespace millrace::api {
namespace {

constexpr uint64_t kBlockBytes = 16;  // of the allocator, for each piece

// Of a token's entry where it is kept, with what a vector grows ahead, and of the event that brought it.
uint64_t KeptBytes(uint64_t alternatives) {
  return 2 * sizeof(ScoredToken) + alternatives * sizeof(TokenText) + kBlockBytes +
         sizeof(engine::TokenEvent) + alternatives * sizeof(engine::TokenLogprob) + kBlockBytes;
}

// Bytes that a token's text has on the average over an answer and its alternatives, at most. More are
// reserved as they come.
constexpr uint64_t kUsualBytes = 6;

bool KeepsLogprobs(const AnswerShape& shape) {
  return shape.logprobs && (!shape.stream || shape.format.keeps_stream);
}

}  // namespace

int64_t AnswerShape::longest() const {
  return limits.empty() ? 0 : std::ranges::max(limits);
}

uint64_t AnswerShape::tokens() const {
  uint64_t all = 0;
  for (const int64_t limit : limits) all += static_cast<uint64_t>(limit);
  return all * static_cast<uint64_t>(choices_per_prompt);
}

AnswerNeeds NeedsOf(const AnswerShape& shape) {
  // Events of a stream that wait for their turn.
  constexpr uint64_t kWaitingEvents = 256;
  const uint64_t sequences = shape.sequences();
  AnswerNeeds needs{shape.fixed_bytes + sequences * shape.fixed_bytes_per_sequence + shape.format.fixed_bytes,
                    0};
  const auto alternatives = static_cast<uint64_t>(shape.logprobs.value_or(0));
  if (KeepsLogprobs(shape)) {
    needs.bytes_per_token = KeptBytes(alternatives) + static_cast<uint64_t>(shape.format.copies) *
                                                          (1 + alternatives) *
                                                          (kMostNamesBytes + kMostBytesPerByte * kUsualBytes);
  } else if (shape.logprobs) {
    const uint64_t waiting = std::min<uint64_t>(kWaitingEvents, static_cast<uint64_t>(shape.longest()));
    needs.fixed_bytes += sequences * waiting * KeptBytes(alternatives);
  }
  // Choices wait for the last of them, and are written together.
  if (sequences > 1 && !shape.stream) {
    constexpr uint64_t kGrowth = 2;
    needs.bytes_per_token +=
        kAnswerBytesPerToken + kGrowth * kUsualBytes * static_cast<uint64_t>(shape.format.text_copies);
  }
  return needs;
}

uint64_t PlannedBytes(const AnswerShape& shape) {
  return std::min(NeedsOf(shape).fixed_bytes, kAnswerBytesPerRequest);
}

uint64_t BytesToReserve(const AnswerShape& shape) {
  const AnswerNeeds needs = NeedsOf(shape);
  return needs.fixed_bytes - PlannedBytes(shape) + needs.bytes_per_token * shape.tokens();
}

uint64_t LogprobBytes(const TextDelta& delta, const AnswerShape& shape) {
  if (!KeepsLogprobs(shape)) return 0;
  const uint64_t tokens = delta.reasoning_tokens.size() + delta.content_tokens.size();
  return tokens * KeptBytes(static_cast<uint64_t>(*shape.logprobs)) +
         static_cast<uint64_t>(shape.format.copies) *
             (MostLogprobsBytes(delta.reasoning_tokens) + MostLogprobsBytes(delta.content_tokens));
}

uint64_t TextBytes(const TextDelta& delta) {
  constexpr uint64_t kGrowth = 2;  // of strings, ahead of what they hold
  uint64_t bytes = delta.reasoning.size() + delta.content.size();
  for (const CallDelta& call : delta.calls) {
    bytes += call.arguments.size();
    if (call.first())
      bytes += sizeof(FinishedCall) + call.tool.name_space.size() + call.tool.name.size() +
               call.written_name.size();
  }
  return kGrowth * bytes;
}

}  // namespace millrace::api
