#include "app/byte_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/units.h"

namespace millrace::app {
namespace {

std::optional<double> UnitBytes(std::string_view unit, Gigabyte gigabyte) {
  constexpr std::string_view kUnits = "bkmgtp";
  if (unit.empty()) return static_cast<double>(kGiB);
  const size_t power = kUnits.find(unit[0]);
  const std::string_view rest = unit.substr(1);
  if (power == std::string_view::npos || (power == 0 && !rest.empty())) return std::nullopt;
  if (!rest.empty() && rest != "b" && rest != "ib") return std::nullopt;
  const bool decimal = rest == "b" && gigabyte == Gigabyte::kDecimal;
  return std::pow(decimal ? 1000.0 : 1024.0, static_cast<double>(power));
}

}  // namespace

Result<uint64_t> ParseByteSize(const std::string& text, Gigabyte gigabyte) {
  std::string lower;
  for (const char c : text)
    if (c != ' ') lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  double number = 0;
  const auto [end, error] =
      std::from_chars(lower.data(), lower.data() + lower.size(), number, std::chars_format::fixed);
  const size_t digits = static_cast<size_t>(end - lower.data());
  const std::optional<double> unit = UnitBytes(std::string_view(lower).substr(digits), gigabyte);
  const bool is_number =
      error == std::errc() ? std::isfinite(number) : error == std::errc::result_out_of_range;
  if (!is_number || !unit) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("Value {} is no size; sizes are written 84GiB, 96GB or 512MiB, a number alone is in GiB",
                    text));
  }
  constexpr double kMost = 1024.0 * 1024 * 1024 * 1024 * 1024;
  const double bytes = std::floor(number * *unit);
  if (error != std::errc() || !(bytes >= 1 && bytes <= kMost))
    return Error(ErrorCode::kInvalidArgument, fmt::format("Value {} not in range 1 B to 1 PiB", text));
  return static_cast<uint64_t>(bytes);
}

}  // namespace millrace::app
