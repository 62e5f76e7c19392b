#include "api/finished_choice.h"

#include <iterator>
#include <utility>

#include "base/check.h"
#include "text/ordered_json.h"

namespace millrace::api {
namespace {

void MoveTo(std::vector<ScoredToken>& from, std::vector<ScoredToken>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

std::string WithoutRepeatedKeys(std::string arguments) {
  const Result<text::OrderedJson> parsed = text::ParseOrderedJson(arguments);
  return parsed.ok() ? text::PythonJson(*parsed) : std::move(arguments);
}

void ChoiceBuilder::Append(TextDelta delta) {
  choice_.reasoning += delta.reasoning;
  choice_.content += delta.content;
  MoveTo(delta.reasoning_tokens, choice_.reasoning_tokens);
  MoveTo(delta.content_tokens, choice_.content_tokens);
  for (CallDelta& call : delta.calls) {
    if (call.first()) {
      MILLRACE_CHECK(call.index == choice_.calls.size(), "calls begin in their order");
      choice_.calls.push_back({std::move(call.id), std::move(call.tool), std::move(call.written_name), ""});
      complete_.push_back(false);
    }
    choice_.calls.at(call.index).arguments += call.arguments;
    complete_[call.index] = call.complete;
  }
}

FinishedChoice ChoiceBuilder::Finish(AnswerEnd end) {
  FinishedChoice finished = std::move(choice_);
  std::vector<FinishedCall> whole;
  for (size_t c = 0; c < finished.calls.size(); ++c) {
    if (!complete_[c]) continue;
    finished.calls[c].arguments = WithoutRepeatedKeys(std::move(finished.calls[c].arguments));
    whole.push_back(std::move(finished.calls[c]));
  }
  finished.calls = std::move(whole);
  finished.end = std::move(end);
  return finished;
}

}  // namespace millrace::api
