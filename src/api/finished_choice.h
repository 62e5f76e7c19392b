#pragma once

#include <string>
#include <vector>

#include "api/generation.h"
#include "text/tool_schema.h"

namespace millrace::api {

// A complete call of a finished answer.
struct FinishedCall {
  std::string id;       // as in CallDelta
  text::ToolName tool;  // as the client declared it
  std::string written_name;
  std::string arguments;  // the text of a JSON object without a key twice
};

// One choice of an answer, put together from its deltas.
struct FinishedChoice {
  std::string reasoning;
  std::string content;
  std::vector<ScoredToken> reasoning_tokens;
  std::vector<ScoredToken> content_tokens;
  std::vector<FinishedCall> calls;
  AnswerEnd end;
};

// The `arguments` of a complete call as its deltas concatenate. They may hold a key twice, when the model
// gave a parameter twice; the last value counts and is the only one left.
std::string WithoutRepeatedKeys(std::string arguments);

// Puts the deltas of one choice together. One thread.
class ChoiceBuilder {
 public:
  void Append(TextDelta delta);
  // Calls that did not complete are left out. Call once.
  FinishedChoice Finish(AnswerEnd end);

 private:
  FinishedChoice choice_;
  std::vector<bool> complete_;  // of choice_.calls
};

}  // namespace millrace::api
