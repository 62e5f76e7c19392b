#include "text/token_trie.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace millrace::text {
namespace {

constexpr size_t kBlock = 256;  // what base XOR byte can reach
constexpr uint64_t kNodesAToken = 3;

}  // namespace

// Places the nodes of sorted entries, depth first, so that a node without brothers mostly follows its parent.
class TokenTrie::Builder {
 public:
  Builder(const std::vector<Entry>& entries, std::vector<Node>& nodes) : entries_(entries), nodes_(nodes) {
    nodes_.resize(kBlock);
    has_base_.resize(kBlock);
    from_.fill(kBlock);
  }

  void Build() {
    open_.push_back({.begin = 0, .end = entries_.size(), .depth = 0, .slot = 0});
    while (!open_.empty()) {
      const Range range = open_.back();
      open_.pop_back();
      Expand(range);
    }
    nodes_.shrink_to_fit();
  }

 private:
  // Entries that share `depth` bytes, and the slot of the node of those.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
    size_t depth = 0;
    size_t slot = 0;
  };

  uint8_t ByteAt(size_t entry, size_t depth) const {
    return static_cast<uint8_t>(entries_[entry].bytes[depth]);
  }

  void Expand(Range range) {
    if (range.begin < range.end && entries_[range.begin].bytes.size() == range.depth) ++range.begin;
    if (range.begin == range.end) return;
    children_.clear();
    for (size_t i = range.begin; i < range.end;) {
      const uint8_t byte = ByteAt(i, range.depth);
      size_t end = i + 1;
      while (end < range.end && ByteAt(end, range.depth) == byte) ++end;
      children_.push_back({.begin = i, .end = end, .depth = range.depth + 1, .slot = byte});
      i = end;
    }
    const size_t base = FreeBase();
    nodes_[range.slot].SetBase(base);
    has_base_[base] = true;
    for (Range& child : children_) {
      Node node(static_cast<uint8_t>(child.slot));
      if (const Entry& first = entries_[child.begin]; first.bytes.size() == child.depth) {
        node.SetToken(first.token);
      }
      child.slot ^= base;
      nodes_[child.slot] = node;
    }
    open_.insert(open_.end(), children_.rbegin(), children_.rend());
  }

  // For children_, whose slots are their bytes still. Each order of magnitude goes on where it found room
  // last: going back for the gaps would take most of the time of loading, and single children fill them.
  size_t FreeBase() {
    size_t& from = from_[static_cast<size_t>(std::bit_width(children_.size()))];
    for (;; ++from) {
      const size_t base = from ^ children_[0].slot;
      if (const size_t end = (base / kBlock + 1) * kBlock; end > nodes_.size()) {
        nodes_.resize(end);
        has_base_.resize(end);
      }
      const auto is_free = [&](const Range& child) { return !nodes_[base ^ child.slot].used(); };
      if (!has_base_[base] && std::ranges::all_of(children_, is_free)) return base;
    }
  }

  const std::vector<Entry>& entries_;
  std::vector<Node>& nodes_;
  std::vector<bool> has_base_;
  std::vector<Range> open_;
  std::vector<Range> children_;
  std::array<size_t, 10> from_;  // by the binary digits of the number of children
};

TokenTrie::TokenTrie(std::vector<Entry> entries)
    : characters_(kCharacters), followers_((size_t{1} << kFollowerBits) / 64) {
  std::ranges::sort(entries, {}, &Entry::bytes);
  Builder(entries, nodes_).Build();
  NoteCharacters(entries);
}

uint64_t TokenTrie::BytesFor(uint64_t n_tokens) {
  return (kNodesAToken * n_tokens + kCharacters) * sizeof(Node) + (uint64_t{1} << kFollowerBits) / 8;
}

// `bytes` begin a token.
TokenTrie::Node TokenTrie::Find(std::string_view bytes) const {
  Node node = nodes_[0];
  for (const char byte : bytes) node = nodes_[node.base() ^ static_cast<uint8_t>(byte)];
  return node;
}

void TokenTrie::NoteCharacters(const std::vector<Entry>& entries) {
  constexpr size_t kLength = 3;
  for (const Entry& entry : entries) {  // a character before those that begin with it
    const uint32_t character = Character(entry.bytes);
    if (character == 0) continue;
    const std::string_view rest = entry.bytes.substr(kLength);
    if (rest.empty()) {
      characters_[character] = Find(entry.bytes);
    } else if (const uint32_t next = Character(rest); next != 0) {
      const uint32_t bit = FollowerBit(character, next);
      followers_[bit / 64] |= uint64_t{1} << (bit % 64);
    } else if (rest.size() < kLength) {
      characters_[character] = Node();
    }
  }
}

}  // namespace millrace::text
