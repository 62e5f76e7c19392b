#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace millrace {

// An integer that only mixes with its own kind. Tag is any type, used as a name.
template <typename Tag, typename Rep = uint32_t>
struct StrongId {
  Rep value{};

  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

// A token of the checkpoint's vocabulary. Plain because every array of ids on disk, in JSON and in batches is
// one.
using TokenId = int32_t;

using PageId = StrongId<struct PageTag>;          // a page of one PagePool
using SeqId = StrongId<struct SeqTag, uint64_t>;  // a sequence of one Engine, never reused

}  // namespace millrace

template <typename Tag, typename Rep>
struct std::hash<millrace::StrongId<Tag, Rep>> {
  size_t operator()(millrace::StrongId<Tag, Rep> id) const noexcept { return std::hash<Rep>()(id.value); }
};
