#include "text/parsed_message.h"

namespace millrace::text {

void ParsedMessage::Append(const ParsedDelta& delta) {
  reasoning += delta.reasoning;
  content += delta.content;
  for (const CallDelta& call : delta.calls) {
    if (call.index == calls.size()) calls.push_back({.name = call.name, .arguments = {}, .complete = false});
    calls[call.index].arguments += call.arguments;
    calls[call.index].complete = call.complete;
  }
}

}  // namespace millrace::text
