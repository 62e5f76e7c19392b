#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace millrace {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// 1234567 -> "1,234,567"
inline std::string WithThousands(uint64_t n) {
  std::string digits = std::to_string(n);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

// Bytes in the largest binary unit that keeps the number above 1: "1.30 GiB", "512 B".
inline std::string HumanBytes(uint64_t bytes) {
  if (bytes >= kGiB) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / kGiB);
  if (bytes >= kMiB) return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / kMiB);
  if (bytes >= kKiB) return fmt::format("{:.2f} KiB", static_cast<double>(bytes) / kKiB);
  return fmt::format("{} B", bytes);
}

inline constexpr uint64_t RoundUp(uint64_t n, uint64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace millrace
