#include "engine/token_counts.h"

#include <algorithm>

namespace millrace::engine {

TokenCounts::TokenCounts(int64_t vocab_size) : entries_(static_cast<size_t>(vocab_size)) {}

uint64_t TokenCounts::Bytes(int64_t vocab_size) {
  return static_cast<uint64_t>(vocab_size) * sizeof(uint32_t);
}

void TokenCounts::Start(std::span<const TokenId> prompt) {
  std::ranges::fill(entries_, 0u);
  for (const TokenId token : prompt) entries_[static_cast<size_t>(token)] = 1;
}

}  // namespace millrace::engine
