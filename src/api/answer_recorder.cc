#include "api/answer_recorder.h"

#include <utility>

#include "api/forced_call.h"

namespace millrace::api {

void AnswerRecorder::Record(const Generation& generation, const FinishedChoice& choice) const {
  if (!generation.all_told() || generation.ids().empty()) return;
  GeneratedAnswer answer;
  answer.ids = generation.ids();
  if (generation.ended_at_only_call()) CloseCalls(encoder_, answer.ids);
  answer.started_in_reasoning = starts_in_reasoning_;
  answer.reasoning = choice.reasoning;
  answer.content = choice.content;
  for (const FinishedCall& call : choice.calls)
    answer.calls.push_back({.id = call.id, .name = call.written_name, .arguments = call.arguments});
  store_.Add(conversation_, std::move(answer));
}

}  // namespace millrace::api
