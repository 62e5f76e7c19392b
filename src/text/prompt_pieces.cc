#include "text/prompt_pieces.h"

namespace millrace::text {

std::vector<TokenId> PromptPieces::Encode(const Tokenizer& tokenizer) const {
  std::vector<TokenId> ids;
  for (const Piece& piece : pieces_) {
    if (piece.control) {
      ids.push_back(*piece.control);
    } else {
      tokenizer.AppendText(piece.text, ids);
    }
  }
  return ids;
}

std::string PromptPieces::Spelled(const Tokenizer& tokenizer) const {
  std::string text;
  for (const Piece& piece : pieces_) {
    text += piece.control ? tokenizer.TokenBytes(*piece.control) : std::string_view(piece.text);
  }
  return text;
}

}  // namespace millrace::text
