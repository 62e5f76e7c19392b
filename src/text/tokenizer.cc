#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "text/utf8.h"

namespace millrace::text {
namespace {

// A rough lower bound of bytes per token, to size outputs once.
constexpr size_t kBytesPerToken = 3;

Error Corrupt(std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message));
}

// Ids of base tokens by raw string.
using BaseIds = std::unordered_map<std::string_view, TokenId>;

std::vector<uint8_t> ControlFlags(const formats::TokenizerData& data) {
  std::vector<uint8_t> flags(data.tokens.size(), 0);
  for (const formats::AddedToken& token : data.added_tokens) flags[static_cast<size_t>(token.id)] = 1;
  return flags;
}

Status CheckAddedTokens(const formats::TokenizerData& data) {
  std::unordered_map<std::string_view, TokenId> seen;
  for (const formats::AddedToken& token : data.added_tokens) {
    const bool has_slot = token.id >= 0 && static_cast<size_t>(token.id) < data.tokens.size() &&
                          data.tokens[static_cast<size_t>(token.id)] == token.content;
    if (!has_slot || token.content.empty()) {
      return Corrupt(fmt::format("control token \"{}\" does not stand in the vocabulary at its id {}",
                                 token.content, token.id));
    }
    if (!seen.emplace(token.content, token.id).second) {
      return Corrupt(fmt::format("control token \"{}\" stands twice", token.content));
    }
  }
  return {};
}

Result<std::vector<Merge>> ResolveMerges(const formats::TokenizerData& data, const BaseIds& base_ids) {
  std::vector<Merge> merges;
  merges.reserve(data.merges.size());
  std::string joined;
  for (const auto& [left, right] : data.merges) {
    joined.assign(left).append(right);
    const auto left_id = base_ids.find(left);
    const auto right_id = base_ids.find(right);
    const auto result_id = base_ids.find(joined);
    if (left_id == base_ids.end() || right_id == base_ids.end() || result_id == base_ids.end()) {
      return Corrupt(
          fmt::format("merge {} joins \"{}\" and \"{}\", which with their result must be base tokens",
                      merges.size(), left, right));
    }
    merges.push_back({left_id->second, right_id->second, result_id->second});
  }
  return merges;
}

Result<std::array<TokenId, 256>> ByteTokens(const BaseIds& base_ids) {
  std::array<TokenId, 256> tokens{};
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto found = base_ids.find(formats::ByteLevelEncode(std::string(1, static_cast<char>(byte))));
    if (found == base_ids.end()) {
      return Corrupt(fmt::format("the vocabulary has no token for byte 0x{:02x}", byte));
    }
    tokens[byte] = found->second;
  }
  return tokens;
}

}  // namespace

Result<Tokenizer> Tokenizer::Build(const formats::TokenizerData& data) {
  if (static_cast<int64_t>(std::max(data.tokens.size(), data.merges.size())) > formats::kMaxVocabSize) {
    return Corrupt(fmt::format("{} tokens and {} merges, at most {} of each are accepted", data.tokens.size(),
                               data.merges.size(), formats::kMaxVocabSize));
  }
  MILLRACE_RETURN_IF_ERROR(CheckAddedTokens(data));
  const std::vector<uint8_t> is_control = ControlFlags(data);
  std::vector<std::string> token_bytes(data.tokens.size());
  BaseIds base_ids;
  base_ids.reserve(data.tokens.size());
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (is_control[id]) {
      token_bytes[id] = data.tokens[id];
    } else if (!data.tokens[id].empty()) {
      MILLRACE_ASSIGN_OR_RETURN(token_bytes[id], formats::ByteLevelDecode(data.tokens[id]));
      if (!base_ids.emplace(data.tokens[id], static_cast<TokenId>(id)).second) {
        return Corrupt(fmt::format("token \"{}\" stands twice", data.tokens[id]));
      }
    }
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto byte_tokens, ByteTokens(base_ids));
  MILLRACE_ASSIGN_OR_RETURN(const auto merges, ResolveMerges(data, base_ids));
  return Tokenizer(data, token_bytes, byte_tokens, merges);
}

Result<Tokenizer> Tokenizer::Load(const std::filesystem::path& path) {
  MILLRACE_ASSIGN_OR_RETURN(const formats::TokenizerData data, formats::ReadTokenizerJson(path));
  return Build(data);
}

Tokenizer::Tokenizer(const formats::TokenizerData& data, const std::vector<std::string>& token_bytes,
                     std::span<const TokenId> byte_tokens, std::span<const Merge> merges)
    : is_control_(ControlFlags(data)),
      control_(data.added_tokens),
      matcher_(MatchEncoder::Build(byte_tokens, merges)) {
  if (!matcher_) merger_.emplace(byte_tokens, merges);
  byte_ends_.reserve(token_bytes.size());
  for (const std::string& bytes : token_bytes) {
    bytes_ += bytes;
    byte_ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
}

uint64_t Tokenizer::BytesFor(int64_t vocab_size) {
  constexpr uint64_t kTokenBytes = 10;
  constexpr uint64_t kGrowth = 2;  // of a string that doubles
  constexpr uint64_t kCodePoints = 0x110000;
  const auto tokens = static_cast<uint64_t>(vocab_size);
  return kCodePoints + tokens * (sizeof(uint32_t) + sizeof(uint8_t)) + kGrowth * kTokenBytes * tokens +
         MatchEncoder::BytesFor(tokens);
}

std::vector<TokenId> Tokenizer::EncodeText(std::string_view text) const {
  std::vector<TokenId> ids;
  AppendText(text, ids);
  return ids;
}

std::vector<TokenId> Tokenizer::EncodePrompt(std::string_view text) const {
  std::vector<TokenId> ids;
  AppendPrompt(text, ids);
  return ids;
}

void Tokenizer::AppendText(std::string_view text, std::vector<TokenId>& ids) const {
  if (!IsUtf8(text)) return AppendText(RepairUtf8(text), ids);
  Scratch scratch;
  ids.reserve(ids.size() + text.size() / kBytesPerToken);
  AppendValid(text, scratch, ids);
}

void Tokenizer::AppendPrompt(std::string_view text, std::vector<TokenId>& ids) const {
  if (!IsUtf8(text)) return AppendPrompt(RepairUtf8(text), ids);
  Scratch scratch;
  ids.reserve(ids.size() + text.size() / kBytesPerToken);
  size_t from = 0;
  while (const auto match = control_.FindFirst(text, from)) {
    AppendValid(text.substr(from, match->begin - from), scratch, ids);
    ids.push_back(match->token);
    from = match->end;
  }
  AppendValid(text.substr(from), scratch, ids);
}

void Tokenizer::AppendValid(std::string_view text, Scratch& scratch, std::vector<TokenId>& ids) const {
  PieceSplitter splitter(classes_, text);
  for (std::string_view piece = splitter.Next(); !piece.empty(); piece = splitter.Next()) {
    if (matcher_) {
      matcher_->Encode(piece, scratch.matcher, ids);
    } else {
      merger_->Encode(piece, scratch.merger, ids);
    }
  }
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto i = static_cast<size_t>(id);
  const size_t begin = i == 0 ? 0 : byte_ends_[i - 1];
  return std::string_view(bytes_).substr(begin, byte_ends_[i] - begin);
}

bool Tokenizer::IsControl(TokenId id) const {
  return id >= 0 && id < vocab_size() && is_control_[static_cast<size_t>(id)] != 0;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, ControlTokens control) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (control == ControlTokens::kKeep || !IsControl(id)) bytes += TokenBytes(id);
  }
  return IsUtf8(bytes) ? bytes : RepairUtf8(bytes);
}

}  // namespace millrace::text
