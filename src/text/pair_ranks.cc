#include "text/pair_ranks.h"

#include <algorithm>
#include <bit>

namespace millrace::text {

size_t PairRanks::SlotsFor(uint64_t n_pairs) {
  return std::bit_ceil(std::max<uint64_t>(2 * n_pairs, 64));
}

uint64_t PairRanks::BytesFor(uint64_t n_pairs) {
  return SlotsFor(n_pairs) * sizeof(uint64_t) + SlotsFor(n_pairs) * kFilterBits / 8;
}

PairRanks::PairRanks(size_t n_pairs)
    : slots_(SlotsFor(n_pairs), kEmptySlot),
      filter_(slots_.size() * kFilterBits / 64),
      shift_(64 - std::countr_zero(slots_.size())) {}

void PairRanks::Insert(uint32_t left, uint32_t right, uint32_t rank) {
  const uint64_t key = Key(left, right);
  const uint64_t hash = Hash(key);
  uint64_t slot = hash >> shift_;
  while (slots_[slot] != kEmptySlot) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = key << 24 | rank;
  const uint64_t bit = FilterBit(hash);
  filter_[bit / 64] |= uint64_t{1} << (bit % 64);
}

}  // namespace millrace::text
