#include "api/reasoning_seal.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace millrace::api {
namespace {

// In front of the checksum's hexadecimal digits and the base64.
constexpr std::string_view kMark = "millrace-reasoning-1-";
constexpr size_t kChecksumDigits = 16;
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr int kDigitBits = 6;

// FNV-1a of 64 bits: against accidents, not against forgers, who could just as well send the text.
std::string Checksum(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char byte : text) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}

constexpr std::array<int8_t, 256> DigitValues() {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t d = 0; d < kDigits.size(); ++d)
    values[static_cast<uint8_t>(kDigits[d])] = static_cast<int8_t>(d);
  return values;
}

// The URL alphabet without padding.
std::string EncodeBase64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() * 4 + 2) / 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char byte : bytes) {
    bits = bits << 8 | static_cast<uint8_t>(byte);
    for (count += 8; count >= kDigitBits; count -= kDigitBits)
      out += kDigits[bits >> (count - kDigitBits) & 63];
  }
  if (count > 0) out += kDigits[bits << (kDigitBits - count) & 63];
  return out;
}

std::optional<std::string> DecodeBase64(std::string_view digits) {
  static constexpr std::array<int8_t, 256> kValues = DigitValues();
  std::string out;
  out.reserve(digits.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : digits) {
    const int8_t value = kValues[static_cast<uint8_t>(digit)];
    if (value < 0) return std::nullopt;
    bits = bits << kDigitBits | static_cast<uint32_t>(value);
    count += kDigitBits;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 255);
  }
  return out;
}

}  // namespace

std::string SealReasoning(std::string_view reasoning) {
  return fmt::format("{}{}{}", kMark, Checksum(reasoning), EncodeBase64(reasoning));
}

std::optional<std::string> UnsealReasoning(std::string_view sealed) {
  if (!sealed.starts_with(kMark)) return std::nullopt;
  sealed.remove_prefix(kMark.size());
  if (sealed.size() < kChecksumDigits) return std::nullopt;
  std::optional<std::string> text = DecodeBase64(sealed.substr(kChecksumDigits));
  if (!text || Checksum(*text) != sealed.substr(0, kChecksumDigits) || !text::IsUtf8(*text))
    return std::nullopt;
  return text;
}

}  // namespace millrace::api
