#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::text {

// The ranks of the pairs that merge, by the two numbers of a pair. Filled once, then immutable: any thread.
class PairRanks {
 public:
  static constexpr uint32_t kNone = (1u << 24) - 1;

  // For at most `n_pairs`.
  explicit PairRanks(size_t n_pairs);

  // Numbers below 2^20, ranks below 2^20, no pair twice.
  void Insert(uint32_t left, uint32_t right, uint32_t rank);

  // kNone: the pair does not merge.
  uint32_t Find(uint32_t left, uint32_t right) const {
    const uint64_t key = Key(left, right);
    const uint64_t hash = Hash(key);
    if (!MayHold(hash)) return kNone;
    for (uint64_t slot = hash >> shift_;; slot = (slot + 1) & (slots_.size() - 1)) {
      const uint64_t entry = slots_[slot];
      if (entry >> 24 == key) return static_cast<uint32_t>(entry & kNone);
      if (entry == kEmptySlot) return kNone;
    }
  }

  // What the table for so many pairs takes.
  static uint64_t BytesFor(uint64_t n_pairs);

 private:
  static constexpr uint64_t kEmptySlot = ~uint64_t{0};
  static constexpr uint64_t kFilterBits = 2;  // for each slot, so that at most one in four is set

  static uint64_t Key(uint32_t left, uint32_t right) { return uint64_t{left} << 20 | right; }
  static uint64_t Hash(uint64_t key) { return key * 0x9E3779B97F4A7C15u; }
  static size_t SlotsFor(uint64_t n_pairs);
  // Most pairs that are asked for do not merge, and this fits into caches that the slots do not fit into.
  uint64_t FilterBit(uint64_t hash) const { return (hash ^ hash << 29) >> (shift_ - 1); }
  bool MayHold(uint64_t hash) const {
    const uint64_t bit = FilterBit(hash);
    return (filter_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  // Open addressing, linear probing, at most half full: left (20 bits), right (20 bits), rank (24 bits).
  std::vector<uint64_t> slots_;
  std::vector<uint64_t> filter_;
  int shift_ = 0;  // 64 - log2(slots_.size())
};

}  // namespace millrace::text
