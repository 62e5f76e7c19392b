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

// The positions of all elements that are not less than `threshold` (a NaN is not); returns how many. Writes
// up to a vector more than that.
size_t FindNotBelow(const float* HWY_RESTRICT values, size_t n, float threshold,
                    uint32_t* HWY_RESTRICT positions) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const size_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d, threshold);
  size_t found = 0;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto above = hn::Not(hn::Lt(hn::LoadU(d, values + i), limit));
    if (HWY_LIKELY(hn::AllFalse(d, above))) continue;
    const auto at = hn::Iota(du, static_cast<uint32_t>(i));
    hn::StoreU(hn::Compress(at, hn::RebindMask(du, above)), du, positions + found);
    found += hn::CountTrue(d, above);
  }
  for (; i < n; ++i) {
    if (!(values[i] < threshold)) positions[found++] = static_cast<uint32_t>(i);
  }
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"

namespace millrace::kernels {
HWY_EXPORT(FindNotBelow);

namespace {

// Moves what is better than `pivot` to the front and returns how many. No branch depends on the data: half of
// them would be mispredicted.
size_t Partition(std::span<Scored> items, Scored pivot) {
  size_t n = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const Scored item = items[i];
    items[i] = items[n];
    items[n] = item;
    n += static_cast<size_t>(item > pivot);
  }
  return n;
}

// Of five elements spread over `items`, the middle one.
Scored SamplePivot(std::span<const Scored> items) {
  std::array<Scored, 5> sample;
  for (size_t i = 0; i < sample.size(); ++i) sample[i] = items[(2 * i + 1) * items.size() / 10];
  std::nth_element(sample.begin(), sample.begin() + 2, sample.end(), std::greater<>());
  return sample[2];
}

// Moves the best k to the front, 0 < k <= items.size().
void SelectBest(std::span<Scored> items, size_t k) {
  constexpr size_t kSmall = 32;
  while (items.size() > kSmall && k < items.size()) {
    const size_t n = Partition(items, SamplePivot(items));
    if (n == 0) break;  // only if items are equal
    if (n < k) {
      items = items.subspan(n);
      k -= n;
    } else {
      items = items.first(n);
    }
  }
  if (k < items.size()) {
    std::nth_element(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(k), items.end(),
                     std::greater<>());
  }
}

// Sorts by rising index, with `spare` of the same size.
void SortByIndex(std::span<Scored> items, std::span<Scored> spare) {
  constexpr int kDigitBits = 8;
  int32_t most = 0;
  for (const Scored& item : items) most = std::max(most, item.index());
  std::span<Scored> from = items;
  std::span<Scored> to = spare;
  for (int shift = 0; shift < 32 && most >> shift > 0; shift += kDigitBits) {
    std::array<size_t, 1 << kDigitBits> starts{};
    const auto digit = [shift](Scored item) {
      return static_cast<size_t>(item.index() >> shift & ((1 << kDigitBits) - 1));
    };
    for (const Scored& item : from) ++starts[digit(item)];
    std::exclusive_scan(starts.begin(), starts.end(), starts.begin(), size_t{0});
    for (const Scored& item : from) to[starts[digit(item)]++] = item;
    std::swap(from, to);
  }
  if (from.data() != items.data()) std::copy(from.begin(), from.end(), items.begin());
}

}  // namespace

RunningTopK::RunningTopK(std::span<Scored> buffer, int64_t k) : buffer_(buffer), k_(static_cast<size_t>(k)) {
  MILLRACE_CHECK(k >= 1 && buffer.size() >= CapacityFor(k), "top-k buffer smaller than planned");
}

size_t RunningTopK::FindCandidates(std::span<const float> scores, Positions& positions) const {
  if (has_threshold_)
    return HWY_DYNAMIC_DISPATCH(FindNotBelow)(scores.data(), scores.size(), threshold_.score(),
                                              positions.data());
  std::iota(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(scores.size()), 0u);
  return scores.size();
}

void RunningTopK::Merge(const RunningTopK& other) {
  for (const Scored& item : other.buffer_.first(other.size_)) Push(item);
}

void RunningTopK::Shrink() {
  if (size_ <= k_) return;
  SelectBest(buffer_.first(size_), k_);
  size_ = k_;
  threshold_ = buffer_.front();
  for (const Scored& item : buffer_.first(k_)) threshold_ = threshold_ > item ? item : threshold_;
  has_threshold_ = true;
}

std::span<const Scored> RunningTopK::Finish() {
  Shrink();
  SortByIndex(buffer_.first(size_), buffer_.subspan(size_, size_));
  return buffer_.first(size_);
}

}  // namespace millrace::kernels
#endif
