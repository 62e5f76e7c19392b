#include "api/raw_prompt.h"

#include <variant>

namespace millrace::api {
namespace {

// Control strings in raw text are control tokens.
std::vector<TokenId> EncodeTrusted(const text::ChatEncoder& encoder, const Prompt& prompt) {
  if (const auto* const ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  return encoder.tokenizer().EncodePrompt(std::get<std::string>(prompt));
}

}  // namespace

std::vector<TokenId> EncodeRaw(const text::ChatEncoder& encoder, const Prompt& prompt) {
  std::vector<TokenId> ids = EncodeTrusted(encoder, prompt);
  const TokenId bos = encoder.control_ids().bos;
  const bool is_text = std::holds_alternative<std::string>(prompt);
  if (is_text && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

std::optional<std::vector<TokenId>> EncodeAroundHole(const text::ChatEncoder& encoder, const Prompt& prompt,
                                                     const std::string& suffix) {
  const text::Tokenizer& tokenizer = encoder.tokenizer();
  const auto begin = tokenizer.FindToken("<｜fim▁begin｜>");
  const auto hole = tokenizer.FindToken("<｜fim▁hole｜>");
  const auto end = tokenizer.FindToken("<｜fim▁end｜>");
  if (!begin || !hole || !end) return std::nullopt;
  const TokenId bos = encoder.control_ids().bos;
  std::vector<TokenId> before = EncodeTrusted(encoder, prompt);
  if (!before.empty() && before.front() == bos) before.erase(before.begin());
  const std::vector<TokenId> after = tokenizer.EncodePrompt(suffix);
  std::vector<TokenId> ids = {bos, *begin};
  ids.insert(ids.end(), before.begin(), before.end());
  ids.push_back(*hole);
  ids.insert(ids.end(), after.begin(), after.end());
  ids.push_back(*end);
  return ids;
}

std::string EchoText(const text::ChatEncoder& encoder, const Prompt& prompt) {
  if (const auto* const text = std::get_if<std::string>(&prompt)) return *text;
  return encoder.tokenizer().Decode(std::get<std::vector<TokenId>>(prompt), text::ControlTokens::kKeep);
}

}  // namespace millrace::api
