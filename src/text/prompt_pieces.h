#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace millrace::text {

// A prompt in the making: runs of token ids, and between them runs of ordinary text. Neighbouring texts are
// one run whoever wrote them, because token borders depend on what stands together.
class PromptPieces {
 public:
  using Ids = std::vector<TokenId>;
  using Piece = std::variant<Ids, std::string>;

  void AddControl(TokenId id) { AddIds({&id, 1}); }
  // Tokens that stand as they are, such as those of an earlier answer.
  void AddIds(std::span<const TokenId> ids);
  void AddText(std::string_view text);

  const std::vector<Piece>& pieces() const { return pieces_; }

  std::vector<TokenId> Encode(const Tokenizer& tokenizer) const;
  // With control tokens spelled out, for logs and tests. Encoding this string would not be safe.
  std::string Spelled(const Tokenizer& tokenizer) const;

 private:
  std::vector<Piece> pieces_;
};

}  // namespace millrace::text
