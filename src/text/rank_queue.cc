#include "text/rank_queue.h"

#include <algorithm>
#include <bit>

namespace millrace::text {

void RankQueue::Reset(size_t n_ranks) {
  while (!empty()) Pop();
  nodes_.clear();
  if (lists_.size() >= n_ranks) return;
  lists_.assign(n_ranks, {kNone, kNone});
  for (std::vector<uint64_t>& level : levels_) {
    n_ranks = (n_ranks + 63) / 64;
    level.assign(std::max<size_t>(n_ranks, 1), 0);
  }
}

void RankQueue::Push(uint32_t rank, uint32_t place) {
  List& list = lists_[rank];
  if (list.head != kNone && nodes_[list.tail].place > place) return late_.push({rank, place});
  const auto node = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({place, kNone});
  if (list.head == kNone) {
    list.head = node;
    Mark(rank);
  } else {
    nodes_[list.tail].next = node;
  }
  list.tail = node;
}

RankQueue::Entry RankQueue::Pop() {
  constexpr Entry kLast{kNone, kNone};
  const uint32_t rank = LowestListed();
  const Entry listed = rank == kNone ? kLast : Entry{rank, nodes_[lists_[rank].head].place};
  if (!late_.empty() && late_.top() < listed) {
    const Entry late = late_.top();
    late_.pop();
    return late;
  }
  List& list = lists_[rank];
  list.head = nodes_[list.head].next;
  if (list.head == kNone) Unmark(rank);
  return listed;
}

uint32_t RankQueue::LowestListed() const {
  if (levels_[kLevels - 1][0] == 0) return kNone;
  size_t word = 0;
  for (size_t level = kLevels; level-- > 0;)
    word = word * 64 + static_cast<size_t>(std::countr_zero(levels_[level][word]));
  return static_cast<uint32_t>(word);
}

void RankQueue::Mark(uint32_t rank) {
  size_t bit = rank;
  for (std::vector<uint64_t>& level : levels_) {
    uint64_t& word = level[bit / 64];
    const bool was_empty = word == 0;
    word |= uint64_t{1} << (bit % 64);
    if (!was_empty) return;
    bit /= 64;
  }
}

void RankQueue::Unmark(uint32_t rank) {
  size_t bit = rank;
  for (std::vector<uint64_t>& level : levels_) {
    uint64_t& word = level[bit / 64];
    word &= ~(uint64_t{1} << (bit % 64));
    if (word != 0) return;
    bit /= 64;
  }
}

}  // namespace millrace::text
