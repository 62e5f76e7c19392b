#include "text/prompt_pieces.h"

namespace millrace::text {

void PromptPieces::AddIds(std::span<const TokenId> ids) {
  if (ids.empty()) return;
  if (pieces_.empty() || !std::holds_alternative<Ids>(pieces_.back())) pieces_.emplace_back(Ids());
  Ids& run = std::get<Ids>(pieces_.back());
  run.insert(run.end(), ids.begin(), ids.end());
}

void PromptPieces::AddText(std::string_view text) {
  if (text.empty()) return;
  if (pieces_.empty() || !std::holds_alternative<std::string>(pieces_.back())) {
    pieces_.emplace_back(std::string());
  }
  std::get<std::string>(pieces_.back()) += text;
}

std::vector<TokenId> PromptPieces::Encode(const Tokenizer& tokenizer) const {
  std::vector<TokenId> ids;
  for (const Piece& piece : pieces_) {
    if (const Ids* const run = std::get_if<Ids>(&piece)) {
      ids.insert(ids.end(), run->begin(), run->end());
    } else {
      tokenizer.AppendText(std::get<std::string>(piece), ids);
    }
  }
  return ids;
}

std::string PromptPieces::Spelled(const Tokenizer& tokenizer) const {
  std::string text;
  for (const Piece& piece : pieces_) {
    if (const Ids* const run = std::get_if<Ids>(&piece)) {
      for (const TokenId id : *run) text += tokenizer.TokenBytes(id);
    } else {
      text += std::get<std::string>(piece);
    }
  }
  return text;
}

}  // namespace millrace::text
