#pragma once

#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/chat_message.h"
#include "text/chat_model.h"
#include "text/control_ids.h"
#include "text/prompt_pieces.h"
#include "text/tokenizer.h"

namespace millrace::text {

// A conversation as the model reads it.
struct ChatPrompt {
  PromptPieces pieces;
  // The completion begins inside the reasoning: the last think token of the prompt opens it.
  bool starts_in_reasoning = false;
  // Sources in the order of their tokens in the prompt (section 8).
  std::vector<OrderedJson> images = {};
  // Some message of the history gives one call id twice; results were ordered by the last.
  bool repeated_call_ids = false;
};

// Renders conversations by the chat encoding of one model. Immutable; any thread.
class ChatEncoder {
 public:
  // `tokenizer` must outlive the encoder. kMismatch if it lacks a control token of the encoding.
  static Result<ChatEncoder> Create(const Tokenizer& tokenizer, ChatModel model = ChatModel::kV41);

  // kInvalidArgument, saying which message or tool is at fault: no messages, an effort outside 1 to 100 in
  // thinking mode, an image or a task that the model does not know, an empty developer message of V4, two
  // tools of one name, a continuation of what is not the assistant's or has calls.
  Result<ChatPrompt> Render(const ChatRequest& request) const;

  std::vector<TokenId> Encode(const ChatPrompt& prompt) const { return prompt.pieces.Encode(tokenizer_); }
  const ControlIds& control_ids() const { return ids_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  ChatModel model() const { return model_; }

 private:
  ChatEncoder(const Tokenizer& tokenizer, ChatModel model, const ControlIds& ids)
      : tokenizer_(tokenizer), model_(model), ids_(ids) {}

  const Tokenizer& tokenizer_;
  ChatModel model_;
  ControlIds ids_;
};

}  // namespace millrace::text
