#include "text/piece_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace millrace::text {

PieceTable::PieceTable(std::span<const Entry> entries)
    : slots_(std::bit_ceil(std::max<size_t>(2 * entries.size(), 2))) {
  const size_t mask = slots_.size() - 1;
  for (const Entry& entry : entries) {
    const uint64_t hash = XXH3_64bits(entry.piece.data(), entry.piece.size());
    size_t slot = hash & mask;
    while (slots_[slot].length != 0) slot = (slot + 1) & mask;
    slots_[slot] = {.begin = static_cast<uint32_t>(bytes_.size()),
                    .length = static_cast<uint32_t>(entry.piece.size()),
                    .check = static_cast<uint32_t>(hash >> 32),
                    .token = entry.token};
    bytes_ += entry.piece;
  }
}

std::optional<TokenId> PieceTable::Find(std::string_view piece) const {
  const uint64_t hash = XXH3_64bits(piece.data(), piece.size());
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.length == 0) return std::nullopt;
    if (slot.check == static_cast<uint32_t>(hash >> 32) && slot.length == piece.size() &&
        std::memcmp(bytes_.data() + slot.begin, piece.data(), piece.size()) == 0) {
      return slot.token;
    }
  }
}

}  // namespace millrace::text
