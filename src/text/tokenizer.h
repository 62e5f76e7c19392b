#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "formats/tokenizer_json.h"
#include "text/byte_pair_merger.h"
#include "text/control_token_trie.h"
#include "text/match_encoder.h"
#include "text/piece_splitter.h"

namespace millrace::text {

enum class ControlTokens : uint8_t {
  kDrop,  // contribute no text: what a client sees
  kKeep,  // contribute their literal text
};

// The tokenizer of a checkpoint: byte-level BPE with the released splitting rules. A control token is an
// entry of the file's added_tokens; nothing here knows an id by heart. Immutable: any thread, no locks.
class Tokenizer {
 public:
  // `data` as ParseTokenizerJson returns it; data made otherwise is checked as far as encoding relies on it
  // (kCorrupt).
  static Result<Tokenizer> Build(const formats::TokenizerData& data);
  // From a tokenizer.json or the directory that holds one.
  static Result<Tokenizer> Load(const std::filesystem::path& path);

  // Bytes that a tokenizer of so many tokens holds, of at most 10 bytes and three different beginnings each
  // in the mean and with no more merges than tokens, as byte-level vocabularies are.
  static uint64_t BytesFor(int64_t vocab_size);

  // Highest id + 1.
  int64_t vocab_size() const { return static_cast<int64_t>(byte_ends_.size()); }

  // Text from outside: a literal such as "<think>" in it is ordinary text, never a control token. Bytes that
  // are not UTF-8 become U+FFFD, one per maximal ill-formed subpart. Texts below 2 GiB. A piece of n bytes
  // takes n steps, with merges that MatchEncoder does not take n log n.
  std::vector<TokenId> EncodeText(std::string_view text) const;
  // Trusted text, such as a template: control tokens are cut out first, the leftmost and of several at one
  // place the longest. Repairs the same.
  std::vector<TokenId> EncodePrompt(std::string_view text) const;

  // The same, appended to `ids`.
  void AppendText(std::string_view text, std::vector<TokenId>& ids) const;
  void AppendPrompt(std::string_view text, std::vector<TokenId>& ids) const;

  // The bytes of a token, which may begin or end inside a character; control tokens: their literal text.
  // Empty for an id that the file leaves out or that lies outside the vocabulary (a model may have spare
  // rows). The view lives as long as the tokenizer.
  std::string_view TokenBytes(TokenId id) const;
  bool IsControl(TokenId id) const;
  // The control token with this literal text.
  std::optional<TokenId> FindToken(std::string_view name) const { return control_.Find(name); }

  // Valid UTF-8; ill-formed parts of the concatenated bytes become U+FFFD. Decode(EncodeText(x)) == x for
  // every valid x.
  std::string Decode(std::span<const TokenId> ids, ControlTokens control = ControlTokens::kDrop) const;

 private:
  Tokenizer(const formats::TokenizerData& data, const std::vector<std::string>& token_bytes,
            std::span<const TokenId> byte_tokens, std::span<const Merge> merges);

  struct Scratch {
    MatchEncoder::Scratch matcher;
    BytePairMerger::Scratch merger;
  };
  void AppendValid(std::string_view text, Scratch& scratch, std::vector<TokenId>& ids) const;

  std::string bytes_;                // of all tokens, in id order
  std::vector<uint32_t> byte_ends_;  // [vocab_size], where a token's bytes end in bytes_
  std::vector<uint8_t> is_control_;  // [vocab_size]
  ControlTokenTrie control_;
  CharClasses classes_;
  std::optional<MatchEncoder> matcher_;
  std::optional<BytePairMerger> merger_;  // where there is no matcher_
};

}  // namespace millrace::text
