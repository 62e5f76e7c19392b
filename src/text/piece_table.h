#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace millrace::text {

// Pieces whose encoding is known to be one token: most words of ordinary text. Immutable after construction;
// any thread.
class PieceTable {
 public:
  struct Entry {
    std::string_view piece;  // copied
    TokenId token = 0;
  };
  // The pieces are distinct and not empty.
  explicit PieceTable(std::span<const Entry> entries);

  std::optional<TokenId> Find(std::string_view piece) const;

  // Of one of the slots, which are a power of two and at least twice as many as entries.
  static constexpr size_t kSlotBytes = 16;

 private:
  struct Slot {
    uint32_t begin = 0;   // of the piece in bytes_
    uint32_t length = 0;  // 0: free
    uint32_t check = 0;   // upper half of the hash: a wrong piece is told without touching bytes_
    TokenId token = 0;
  };
  static_assert(sizeof(Slot) == kSlotBytes);

  std::string bytes_;
  std::vector<Slot> slots_;  // open addressing, linear probing, at most half full
};

}  // namespace millrace::text
