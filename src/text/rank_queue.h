#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace millrace::text {

// A queue of places ordered by rank and, within a rank, by place. Made for merging one very long piece: a
// pass over the places of one rank adds those of higher ranks in order, so that nearly every Push appends to
// its rank's list and every Pop takes the first of the lowest rank, each in constant time. Places that come
// out of order go through a heap. One thread.
class RankQueue {
 public:
  // Empties it; ranks are below `n_ranks`. Costs n_ranks the first time, later what is left in the queue.
  void Reset(size_t n_ranks);

  void Push(uint32_t rank, uint32_t place);

  struct Entry {
    uint32_t rank = 0;
    uint32_t place = 0;
    auto operator<=>(const Entry&) const = default;
  };
  bool empty() const { return LowestListed() == kNone && late_.empty(); }
  // The lowest; not when empty.
  Entry Pop();

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kLevels = 4;  // 64^4 ranks

  struct Node {
    uint32_t place;
    uint32_t next;
  };
  struct List {
    uint32_t head;
    uint32_t tail;
  };

  uint32_t LowestListed() const;
  void Mark(uint32_t rank);
  void Unmark(uint32_t rank);

  std::vector<List> lists_;  // by rank
  std::vector<Node> nodes_;
  // Bit r of level 0: rank r has places. Bit i of level k + 1: word i of level k is not 0. The top level is
  // one word.
  std::array<std::vector<uint64_t>, kLevels> levels_ = {{{0}, {0}, {0}, {0}}};
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> late_;
};

}  // namespace millrace::text
