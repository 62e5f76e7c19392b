#include "formats/byte_level.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

namespace millrace::formats {
namespace {

constexpr int kAlphabetEnd = 0x100 + 68;  // one past the highest character of the alphabet

// Bytes that stand for themselves; the other 68 take U+0100 onward in rising order.
constexpr bool IsItsOwnCharacter(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> character{};        // code point of a byte
  std::array<int16_t, kAlphabetEnd> byte_of{};  // byte of a code point, -1 if none
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte_of) byte = -1;
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const uint16_t character = IsItsOwnCharacter(byte) ? static_cast<uint16_t>(byte) : next++;
    alphabet.character[static_cast<size_t>(byte)] = character;
    alphabet.byte_of[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

Error NotInAlphabet(std::string_view raw, size_t at) {
  return Error(
      ErrorCode::kCorrupt,
      fmt::format("token \"{}\" has a character outside the byte-level alphabet at byte {}", raw, at));
}

}  // namespace

Result<std::string> ByteLevelDecode(std::string_view raw) {
  std::string bytes;
  bytes.reserve(raw.size());
  // The whole alphabet lies below U+0800, so a character is one or two bytes of UTF-8.
  for (size_t i = 0; i < raw.size();) {
    const auto lead = static_cast<uint8_t>(raw[i]);
    size_t code_point = lead;
    size_t length = 1;
    if (lead >= 0x80) {
      if (lead < 0xC2 || lead > 0xDF || i + 1 == raw.size()) return NotInAlphabet(raw, i);
      const auto trail = static_cast<uint8_t>(raw[i + 1]);
      if ((trail & 0xC0) != 0x80) return NotInAlphabet(raw, i);
      code_point = static_cast<size_t>((lead & 0x1F) << 6 | (trail & 0x3F));
      length = 2;
    }
    if (code_point >= kAlphabet.byte_of.size() || kAlphabet.byte_of[code_point] < 0)
      return NotInAlphabet(raw, i);
    bytes += static_cast<char>(kAlphabet.byte_of[code_point]);
    i += length;
  }
  return bytes;
}

std::string ByteLevelEncode(std::string_view bytes) {
  std::string raw;
  raw.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const uint16_t character = kAlphabet.character[static_cast<uint8_t>(c)];
    if (character < 0x80) {
      raw += static_cast<char>(character);
    } else {
      raw += static_cast<char>(0xC0 | character >> 6);
      raw += static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  return raw;
}

}  // namespace millrace::formats
