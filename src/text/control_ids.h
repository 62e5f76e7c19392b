#pragma once

#include <array>
#include <optional>

#include "base/ids.h"
#include "base/result.h"
#include "text/chat_message.h"
#include "text/chat_model.h"
#include "text/tokenizer.h"

namespace millrace::text {

// Ids of the control tokens that the chat encodings are made of, looked up by name (section 1).
struct ControlIds {
  TokenId bos = 0;
  TokenId eos = 0;
  TokenId user = 0;
  TokenId assistant = 0;
  TokenId think_begin = 0;
  TokenId think_end = 0;
  TokenId dsml = 0;
  TokenId latest_reminder = 0;
  std::optional<TokenId> system;                         // V4.1 always has it
  std::optional<TokenId> image;                          // where a tokenizer knows images
  std::array<std::optional<TokenId>, kTaskCount> tasks;  // by Task, where it knows them

  // kMismatch naming every token that `tokenizer` lacks and `model` needs for any conversation of text.
  static Result<ControlIds> Find(const Tokenizer& tokenizer, ChatModel model = ChatModel::kV41);
};

}  // namespace millrace::text
