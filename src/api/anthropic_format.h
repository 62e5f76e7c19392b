#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/answer_format.h"

namespace millrace::api {

// What one answer to POST /v1/messages says of itself.
struct AnthropicHead {
  std::string id;          // "msg_..."
  std::string model;       // as the client called it
  std::string request_id;  // of an error in mid-stream
  // Of thinking blocks: a proof to Anthropic's own service, to us a text that is not empty.
  std::string signature;
  bool thinking = true;              // false: the client switched it off and is shown none
  bool starts_in_reasoning = false;  // as in ChatPrompt
};

// An object message, or its events in the order of Anthropic's service: message_start, for each block
// content_block_start, content_block_delta and content_block_stop, message_delta, message_stop; one choice.
//
// While a prompt is computed there is nothing to say for minutes, and `ping` events, which Anthropic's
// service sends then, do not count for everybody: its SDKs drop them, and Claude Code's watchdog over events
// leaves them out. So Filler gives `ping` at first, then opens the block with which the answer will probably
// begin and from then on adds nothing to it, in deltas. Should the answer begin otherwise, that block stays
// empty.
std::unique_ptr<AnswerFormat> MakeAnthropicFormat(AnthropicHead head);

// The answer to POST /v1/messages/count_tokens.
std::string AnthropicTokenCountJson(int64_t input_tokens);

}  // namespace millrace::api
