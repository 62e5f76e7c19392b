#pragma once

#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/chat_message.h"
#include "text/control_ids.h"
#include "text/prompt_pieces.h"
#include "text/tokenizer.h"

namespace millrace::text {

// A conversation as the model reads it.
struct ChatPrompt {
  PromptPieces pieces;
  // The completion begins inside the reasoning: the last think token of the prompt opens it.
  bool starts_in_reasoning = false;
};

// Renders conversations by the V4.1 chat encoding. Immutable; any thread.
class ChatEncoder {
 public:
  // `tokenizer` must outlive the encoder. kMismatch if it lacks a control token of the encoding.
  static Result<ChatEncoder> Create(const Tokenizer& tokenizer);

  // kInvalidArgument: no messages, or an effort outside 1 to 100 in thinking mode.
  Result<ChatPrompt> Render(const ChatRequest& request) const;

  std::vector<TokenId> Encode(const ChatPrompt& prompt) const { return prompt.pieces.Encode(tokenizer_); }
  const ControlIds& control_ids() const { return ids_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  ChatEncoder(const Tokenizer& tokenizer, const ControlIds& ids) : tokenizer_(tokenizer), ids_(ids) {}

  const Tokenizer& tokenizer_;
  ControlIds ids_;
};

// What a request's reasoning effort asks for (section 4, table of API names): a name, or a number from 1 to
// 100 as decimal digits. kInvalidArgument for anything else, listing what is accepted.
struct ReasoningMode {
  bool thinking = true;
  int effort = kHighEffort;
};
Result<ReasoningMode> ParseReasoningEffort(std::string_view value);

}  // namespace millrace::text
