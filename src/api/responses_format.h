#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "api/answer_format.h"

namespace millrace::api {

// What every response object of one answer repeats.
struct ResponsesHead {
  std::string id;       // "resp_..."
  std::string model;    // as the client called it
  int64_t created = 0;  // seconds since 1970
  std::string echo;     // ResponsesRequest's
  std::unordered_set<std::string> custom_tools;
  bool seal_reasoning = false;
};

// POST /v1/responses: a response object, or its events in OpenAI's order, each with its sequence_number. The
// output holds at most one reasoning item and one message, in front of the calls. A call that the end cut
// off is announced in a stream but never done, and not in the response. There is one choice.
//
// What keeps a waiting client: until the first item response.in_progress again, because Codex counts events
// and not comments; then an empty delta of the item that is open, because OpenAI's packages take the output
// so far to be what the last response object says.
std::unique_ptr<AnswerFormat> MakeResponsesFormat(ResponsesHead head);

}  // namespace millrace::api
