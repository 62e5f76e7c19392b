#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace::text {

// Tokens by their bytes: which is the longest that a text begins with? A double array, with a short cut for
// characters of three bytes, as Chinese has them, because most of its tokens are one. Immutable after
// construction: any thread.
class TokenTrie {
 public:
  struct Entry {
    std::string_view bytes;  // not kept
    uint32_t token = 0;      // below 2^21 - 1
  };
  // Bytes distinct and not empty.
  explicit TokenTrie(std::vector<Entry> entries);

  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Match {
    uint32_t token = kNone;
    uint32_t length = 0;
  };
  // Steps of constant time for the bytes of the match and of the longest beginning of a token behind it.
  Match Longest(std::string_view text) const;

  // Of `n_tokens` tokens with at most three different beginnings each; those of the released vocabulary have
  // 2.1.
  static uint64_t BytesFor(uint64_t n_tokens);

 private:
  // A node, in the slot base XOR byte of its parent's base. No two nodes with children have the same base, so
  // that the byte tells whose child it is.
  class Node {
   public:
    Node() = default;
    explicit Node(uint8_t byte) : bits_(kUsed | byte) {}
    bool IsChildBy(uint8_t byte) const { return (bits_ & (kUsed | 0xFF)) == (kUsed | byte); }
    bool used() const { return bits_ != 0; }
    uint64_t base() const { return bits_ >> 9 & ((uint64_t{1} << 34) - 1); }
    bool has_token() const { return bits_ >> 43 != 0; }
    uint32_t token() const { return static_cast<uint32_t>(bits_ >> 43) - 1; }
    void SetBase(uint64_t base) { bits_ |= base << 9; }
    void SetToken(uint32_t token) { bits_ |= (uint64_t{token} + 1) << 43; }

   private:
    static constexpr uint64_t kUsed = 0x100;
    uint64_t bits_ = 0;  // byte (8), used (1), base (34), token + 1 (21)
  };
  class Builder;

  // The number of the three-byte character that `text` begins with; 0 if none.
  static uint32_t Character(std::string_view text) {
    if (text.size() < 3) return 0;
    const auto byte = [&](size_t i) -> uint32_t { return static_cast<uint8_t>(text[i]); };
    if ((byte(0) & 0xF0) != 0xE0 || (((byte(1) ^ 0x80) | (byte(2) ^ 0x80)) & 0xC0) != 0) return 0;
    return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  }
  static constexpr size_t kCharacters = 0x10000;
  static constexpr int kFollowerBits = 19;
  static uint32_t FollowerBit(uint32_t character, uint32_t next) {
    return (character * 0x9E3779B1u + next * 0x85EBCA6Bu) >> (32 - kFollowerBits);
  }
  bool MayFollow(uint32_t character, uint32_t next) const {
    const uint32_t bit = FollowerBit(character, next);
    return (followers_[bit / 64] >> (bit % 64) & 1) != 0;
  }
  Node Find(std::string_view bytes) const;
  void NoteCharacters(const std::vector<Entry>& entries);

  std::vector<Node> nodes_;  // the root in 0; leaves have base 0, and nobody's child is in 1 to 255
  // [kCharacters], the nodes of those that are tokens and behind which no token ends inside another one.
  std::vector<Node> characters_;
  std::vector<uint64_t> followers_;  // by hash of two characters: whether a token begins with them
};

inline TokenTrie::Match TokenTrie::Longest(std::string_view text) const {
  Node node = nodes_[0];
  Match best;
  size_t i = 0;
  if (const uint32_t character = Character(text); character != 0 && characters_[character].used()) {
    node = characters_[character];
    best = {node.token(), 3};
    i = 3;
    const uint32_t next = Character(text.substr(3));
    if (next != 0 && !MayFollow(character, next)) return best;
  }
  for (; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node = nodes_[node.base() ^ byte];
    if (!node.IsChildBy(byte)) break;
    if (node.has_token()) best = {node.token(), static_cast<uint32_t>(i + 1)};
  }
  return best;
}

}  // namespace millrace::text
