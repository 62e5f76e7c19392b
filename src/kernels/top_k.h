#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace::kernels {

struct Scored {
  float score = 0;
  int32_t index = 0;
};

// The best k of a stream of (score, index) pairs: highest score first, the lowest index on ties. The set
// depends on the pairs alone, not on their order or on how a stream is split, because no two pairs are equal.
// Works in the caller's buffer of CapacityFor(k) elements; nothing is allocated. A NaN score counts as minus
// infinity.
class RunningTopK {
 public:
  static constexpr size_t CapacityFor(int64_t k) { return static_cast<size_t>(2 * k); }

  // `buffer` outlives the object; k >= 1.
  RunningTopK(std::span<Scored> buffer, int64_t k);

  // Forgets all pairs.
  void Reset() { size_ = 0, has_threshold_ = false; }
  void Push(float score, int32_t index);
  // Pushes (scores[i], index_of(i)) for every i; fast where few of them are good enough to be kept.
  template <typename IndexOf>
  void PushAll(std::span<const float> scores, const IndexOf& index_of) {
    for (size_t i = NextCandidate(scores, 0); i < scores.size(); i = NextCandidate(scores, i + 1))
      Push(scores[i], index_of(i));
  }
  // Takes in everything that `other` kept.
  void Merge(const RunningTopK& other);
  // Leaves the best min(k, pushed) pairs, ordered by rising index; the view is into the buffer.
  std::span<const Scored> Finish();

 private:
  // The first element from `from` on that may be better than the threshold, or the size.
  size_t NextCandidate(std::span<const float> scores, size_t from) const;
  void Shrink();

  std::span<Scored> buffer_;
  size_t k_;
  size_t size_ = 0;
  bool has_threshold_ = false;
  Scored threshold_;  // the worst of the k kept by the last Shrink: what is not better cannot be chosen
};

}  // namespace millrace::kernels
