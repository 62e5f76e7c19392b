#include "text/control_token_trie.h"

#include <algorithm>

namespace millrace::text {

ControlTokenTrie::ControlTokenTrie(std::span<const formats::AddedToken> tokens) {
  std::vector<const formats::AddedToken*> sorted;
  for (const formats::AddedToken& token : tokens) {
    sorted.push_back(&token);
    starts_[static_cast<uint8_t>(token.content[0])] = true;
  }
  std::ranges::sort(sorted, {}, [](const auto* token) -> std::string_view { return token->content; });
  AddNode(sorted, 0);
}

// The node of all `tokens`, which are sorted and agree in their first `depth` bytes.
int32_t ControlTokenTrie::AddNode(std::span<const formats::AddedToken* const> tokens, size_t depth) {
  const auto index = static_cast<int32_t>(nodes_.size());
  nodes_.emplace_back();
  if (!tokens.empty() && tokens[0]->content.size() == depth) {
    nodes_.back().token = tokens[0]->id;
    tokens = tokens.subspan(1);
  }
  std::vector<Edge> edges;
  while (!tokens.empty()) {
    const char byte = tokens[0]->content[depth];
    size_t n = 1;
    while (n < tokens.size() && tokens[n]->content[depth] == byte) ++n;
    edges.push_back({static_cast<uint8_t>(byte), AddNode(tokens.first(n), depth + 1)});
    tokens = tokens.subspan(n);
  }
  Node& node = nodes_[static_cast<size_t>(index)];
  node.first_edge = static_cast<int32_t>(edges_.size());
  node.edge_count = static_cast<int32_t>(edges.size());
  edges_.insert(edges_.end(), edges.begin(), edges.end());
  return index;
}

int32_t ControlTokenTrie::Child(int32_t node, uint8_t byte) const {
  const Node& parent = nodes_[static_cast<size_t>(node)];
  for (int32_t i = 0; i < parent.edge_count; ++i) {
    const Edge& edge = edges_[static_cast<size_t>(parent.first_edge + i)];
    if (edge.byte == byte) return edge.node;
  }
  return kNoNode;
}

std::optional<ControlTokenTrie::Match> ControlTokenTrie::LongestAt(std::string_view text,
                                                                   size_t begin) const {
  std::optional<Match> longest;
  int32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    node = Child(node, static_cast<uint8_t>(text[i]));
    if (node == kNoNode) break;
    const std::optional<TokenId> token = nodes_[static_cast<size_t>(node)].token;
    if (token) longest = Match{.begin = begin, .end = i + 1, .token = *token};
  }
  return longest;
}

std::optional<ControlTokenTrie::Match> ControlTokenTrie::FindFirst(std::string_view text, size_t from) const {
  for (size_t i = from; i < text.size(); ++i) {
    if (!starts_[static_cast<uint8_t>(text[i])]) continue;
    if (auto match = LongestAt(text, i)) return match;
  }
  return std::nullopt;
}

std::optional<TokenId> ControlTokenTrie::Find(std::string_view name) const {
  int32_t node = 0;
  for (const char byte : name) {
    node = Child(node, static_cast<uint8_t>(byte));
    if (node == kNoNode) return std::nullopt;
  }
  return nodes_[static_cast<size_t>(node)].token;
}

}  // namespace millrace::text
