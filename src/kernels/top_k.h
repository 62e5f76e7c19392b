#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace::kernels {

// A score and the index it belongs to (>= 0), as one integer: the better pair is the greater one. A higher
// score is better, the lower index on ties. NaN counts as minus infinity, minus zero as zero.
class Scored {
 public:
  Scored() = default;
  Scored(float score, int32_t index)
      : key_(uint64_t{Ordinal(score)} << 32 | (UINT32_MAX - static_cast<uint32_t>(index))) {}

  float score() const {
    const auto ordinal = static_cast<uint32_t>(key_ >> 32);
    return std::bit_cast<float>(ordinal >= kSign ? ordinal ^ kSign : ~ordinal);
  }
  int32_t index() const { return static_cast<int32_t>(UINT32_MAX - static_cast<uint32_t>(key_)); }

  friend bool operator>(Scored a, Scored b) { return a.key_ > b.key_; }

 private:
  static constexpr uint32_t kSign = 0x80000000u;

  // Ordered like the scores.
  static uint32_t Ordinal(float score) {
    constexpr uint32_t kMinusInfinity = 0xFF800000u;
    const uint32_t bits = score == score ? std::bit_cast<uint32_t>(score + 0.0f) : kMinusInfinity;
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  }

  uint64_t key_ = 0;
};

// The best k of a stream of (score, index) pairs. The set depends on the pairs alone, not on their order or
// on how a stream is split, because no two pairs are equal. Works in the caller's buffer of CapacityFor(k)
// elements; nothing is allocated.
class RunningTopK {
 public:
  static constexpr size_t CapacityFor(int64_t k) { return static_cast<size_t>(2 * k); }

  // `buffer` outlives the object; k >= 1.
  RunningTopK(std::span<Scored> buffer, int64_t k);

  // Forgets all pairs.
  void Reset() { size_ = 0, has_threshold_ = false; }
  void Push(float score, int32_t index) { Push(Scored(score, index)); }
  // Pushes (scores[i], index_of(i)) for every i; fast where few of them are good enough to be kept.
  template <typename IndexOf>
  void PushAll(std::span<const float> scores, const IndexOf& index_of) {
    Positions positions;
    for (size_t begin = 0; begin < scores.size(); begin += kChunk) {
      const std::span<const float> chunk =
          scores.subspan(begin).first(std::min(kChunk, scores.size() - begin));
      const size_t n = FindCandidates(chunk, positions);
      for (size_t i = 0; i < n; ++i) Push(chunk[positions[i]], index_of(begin + positions[i]));
    }
  }
  // Takes in everything that `other` kept.
  void Merge(const RunningTopK& other);
  // Leaves the best min(k, pushed) pairs, ordered by rising index; the view is into the buffer.
  std::span<const Scored> Finish();

 private:
  static constexpr size_t kChunk = 256;
  using Positions = std::array<uint32_t, kChunk + 16>;  // with room for the rest of a vector

  void Push(Scored item) {
    if (has_threshold_ && !(item > threshold_)) return;
    if (size_ == 2 * k_) Shrink();
    buffer_[size_++] = item;
  }
  // Where in at most kChunk scores one may be better than the threshold; returns how many.
  size_t FindCandidates(std::span<const float> scores, Positions& positions) const;
  void Shrink();

  std::span<Scored> buffer_;
  size_t k_;
  size_t size_ = 0;
  bool has_threshold_ = false;
  Scored threshold_;  // the worst of the k kept by the last Shrink: what is not better cannot be chosen
};

}  // namespace millrace::kernels
