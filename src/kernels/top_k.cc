#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/top_k.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/top_k.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The first element that is not less than `threshold` (a NaN is not), or n.
size_t FindNotBelow(const float* values, size_t n, float threshold) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d, threshold);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const intptr_t lane = hn::FindFirstTrue(d, hn::Not(hn::Lt(hn::LoadU(d, values + i), limit)));
    if (lane >= 0) return i + static_cast<size_t>(lane);
  }
  while (i < n && values[i] < threshold) ++i;
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace millrace::kernels {
HWY_EXPORT(FindNotBelow);

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

size_t RunningTopK::NextCandidate(std::span<const float> scores, size_t from) const {
  if (!has_threshold_ || from >= scores.size()) return from;
  const std::span<const float> left = scores.subspan(from);
  return from + HWY_DYNAMIC_DISPATCH(FindNotBelow)(left.data(), left.size(), threshold_.score);
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
#endif
