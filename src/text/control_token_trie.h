#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "formats/tokenizer_json.h"

namespace millrace::text {

// All control tokens of a tokenizer as one trie over their bytes. Immutable; any thread.
class ControlTokenTrie {
 public:
  explicit ControlTokenTrie(std::span<const formats::AddedToken> tokens);

  struct Match {
    size_t begin = 0;
    size_t end = 0;
    TokenId token = 0;
  };
  // The leftmost control token that starts at or after `from`; of several at one place the longest.
  std::optional<Match> FindFirst(std::string_view text, size_t from) const;
  // The token whose whole text is `name`.
  std::optional<TokenId> Find(std::string_view name) const;

 private:
  static constexpr int32_t kNoNode = -1;
  struct Node {
    std::optional<TokenId> token;  // whose text ends here
    int32_t first_edge = 0;        // edges_[first_edge .. + edge_count), ascending by byte
    int32_t edge_count = 0;
  };
  struct Edge {
    uint8_t byte = 0;
    int32_t node = 0;
  };
  int32_t AddNode(std::span<const formats::AddedToken* const> tokens, size_t depth);
  int32_t Child(int32_t node, uint8_t byte) const;
  std::optional<Match> LongestAt(std::string_view text, size_t begin) const;

  std::vector<Node> nodes_;  // [0] is the root
  std::vector<Edge> edges_;
  std::array<bool, 256> starts_{};  // bytes that some token begins with
};

}  // namespace millrace::text
