#include "kernels/top_k.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace millrace::kernels {
namespace {

bool Better(const Scored& a, const Scored& b) {
  return a.score > b.score || (a.score == b.score && a.index < b.index);
}

}  // namespace

RunningTopK::RunningTopK(std::span<Scored> buffer, int64_t k) : buffer_(buffer), k_(static_cast<size_t>(k)) {
  MILLRACE_CHECK(k >= 1 && buffer.size() >= CapacityFor(k), "top-k buffer smaller than planned");
}

void RunningTopK::Push(float score, int32_t index) {
  const Scored item{std::isnan(score) ? -std::numeric_limits<float>::infinity() : score, index};
  if (has_threshold_ && !Better(item, threshold_)) return;
  if (size_ == CapacityFor(static_cast<int64_t>(k_))) Shrink();
  buffer_[size_++] = item;
}

void RunningTopK::Merge(const RunningTopK& other) {
  for (size_t i = 0; i < other.size_; ++i) Push(other.buffer_[i].score, other.buffer_[i].index);
}

void RunningTopK::Shrink() {
  if (size_ <= k_) return;
  const auto kept = buffer_.begin() + static_cast<std::ptrdiff_t>(k_) - 1;
  std::nth_element(buffer_.begin(), kept, buffer_.begin() + static_cast<std::ptrdiff_t>(size_), Better);
  size_ = k_;
  threshold_ = *kept;
  has_threshold_ = true;
}

std::span<const Scored> RunningTopK::Finish() {
  Shrink();
  const std::span<Scored> kept = buffer_.first(size_);
  std::sort(kept.begin(), kept.end(), [](const Scored& a, const Scored& b) { return a.index < b.index; });
  return kept;
}

}  // namespace millrace::kernels
