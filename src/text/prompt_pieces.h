#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace millrace::text {

// A prompt in the making: control tokens, and between them runs of ordinary text. Neighbouring texts are one
// run whoever wrote them, because token borders depend on what stands together.
class PromptPieces {
 public:
  struct Piece {
    std::optional<TokenId> control;
    std::string text;  // when `control` is empty
  };

  void AddControl(TokenId id) { pieces_.push_back({.control = id, .text = {}}); }
  void AddText(std::string_view text) {
    if (text.empty()) return;
    if (pieces_.empty() || pieces_.back().control) pieces_.emplace_back();
    pieces_.back().text += text;
  }

  const std::vector<Piece>& pieces() const { return pieces_; }

  std::vector<TokenId> Encode(const Tokenizer& tokenizer) const;
  // With control tokens spelled out, for logs and tests. Encoding this string would not be safe.
  std::string Spelled(const Tokenizer& tokenizer) const;

 private:
  std::vector<Piece> pieces_;
};

}  // namespace millrace::text
