#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace millrace::app {

// How "GB" is read.
enum class Gigabyte : uint8_t {
  kDecimal,  // 10^9, as drives and RAM budgets are given
  kBinary,   // 2^30, as makers of cards count: a card sold with 96 GB holds 96 GiB
};

// "84GiB", "121.7 GiB", "96GB", "512m"; a number alone is in GiB. Units are B, K, M, G, T, each also as KB
// and KiB, in either case. kInvalidArgument, saying what is accepted, for anything else and outside 1 B to 1
// PiB.
Result<uint64_t> ParseByteSize(const std::string& text, Gigabyte gigabyte);

}  // namespace millrace::app
