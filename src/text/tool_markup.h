#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/chat_message.h"
#include "text/chat_model.h"
#include "text/control_ids.h"
#include "text/prompt_pieces.h"

namespace millrace::text {

// Names of the tags around calls, as they stand behind the mark (chat encoding, section 7). V4.1's begin with
// a space, which makes each a single token.
struct ToolTags {
  std::string_view calls;
  std::string_view invoke;
  std::string_view parameter;
};
ToolTags TagsOf(ChatModel model);

// Writes the markup of one prompt. Marks and think tokens are control tokens; names, schemas, keys and values
// are the caller's text. `ids` and `pieces` outlive the writer.
class ToolMarkupWriter {
 public:
  ToolMarkupWriter(ChatModel model, const ControlIds& ids, PromptPieces& pieces)
      : model_(model), tags_(TagsOf(model)), ids_(ids), pieces_(pieces) {}

  // The block that declares `tools`, without the blank line in front of it; ends with a line break.
  void WriteDeclarations(std::span<const ToolDeclaration* const> tools);
  // The block of an assistant message's calls, likewise; ends with its closing tag.
  void WriteCalls(std::span<const ToolCall> calls);

 private:
  // Text of the encoding itself: here literals of the mark and the think tokens are control tokens.
  void WriteOwn(std::string_view text);
  void WriteCall(const ToolCall& call);
  void WriteParameter(std::string_view key, std::string_view value, bool is_string);
  // "<" or "</", the mark, the name.
  void WriteTag(std::string_view bracket, std::string_view name);

  const ChatModel model_;
  const ToolTags tags_;
  const ControlIds& ids_;
  PromptPieces& pieces_;
};

}  // namespace millrace::text
