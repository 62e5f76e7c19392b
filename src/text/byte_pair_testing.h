#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_pair_merger.h"

namespace millrace::text {

inline std::array<TokenId, 256> ByteTokens() {
  std::array<TokenId, 256> tokens;
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// The rule as it is stated, one scan per merge.
inline std::vector<TokenId> MergedByTheRule(std::string_view piece, std::span<const Merge> merges) {
  std::map<std::pair<TokenId, TokenId>, size_t> ranks;
  for (size_t rank = 0; rank < merges.size(); ++rank) ranks[{merges[rank].left, merges[rank].right}] = rank;
  std::vector<TokenId> ids;
  for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
  for (;;) {
    size_t best_rank = merges.size(), best = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rank = ranks.find({ids[i], ids[i + 1]});
      if (rank != ranks.end() && rank->second < best_rank) best_rank = rank->second, best = i;
    }
    if (best_rank == merges.size()) return ids;
    ids[best] = merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

// Up to `n` random merges of the bytes of `alphabet` and what comes of them, each behind those that make its
// halves, and no two that spell the same.
inline std::vector<Merge> RandomOrderedMerges(std::mt19937& random, std::string_view alphabet, size_t n) {
  std::vector<std::pair<TokenId, std::string>> tokens;
  std::set<std::string> spelled;
  for (const char c : alphabet) tokens.emplace_back(static_cast<uint8_t>(c), std::string(1, c));
  std::vector<Merge> merges;
  for (size_t i = 0; i < n; ++i) {
    const auto& [left, left_bytes] = tokens[random() % tokens.size()];
    const auto& [right, right_bytes] = tokens[random() % tokens.size()];
    std::string bytes = left_bytes + right_bytes;
    if (bytes.size() > 12 || !spelled.insert(bytes).second) continue;
    const auto id = static_cast<TokenId>(256 + merges.size());
    merges.push_back({.left = left, .right = right, .result = id});
    tokens.emplace_back(id, std::move(bytes));
  }
  return merges;
}

}  // namespace millrace::text
