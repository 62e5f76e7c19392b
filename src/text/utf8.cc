#include "text/utf8.h"

#include <array>
#include <cstring>

namespace millrace::text {
namespace {

// How a lead byte goes on: length of the character, and the range of its second byte, which alone excludes
// overlong forms, surrogates and what lies beyond U+10FFFF (Unicode, table 3-7). Length 0: no lead byte.
struct Lead {
  uint8_t length = 0;
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

constexpr std::array<Lead, 256> MakeLeads() {
  std::array<Lead, 256> leads;
  for (size_t byte = 0; byte < 0x80; ++byte) leads[byte].length = 1;
  for (size_t byte = 0xC2; byte <= 0xDF; ++byte) leads[byte].length = 2;
  for (size_t byte = 0xE0; byte <= 0xEF; ++byte) leads[byte].length = 3;
  for (size_t byte = 0xF0; byte <= 0xF4; ++byte) leads[byte].length = 4;
  leads[0xE0].second_min = 0xA0;
  leads[0xED].second_max = 0x9F;
  leads[0xF0].second_min = 0x90;
  leads[0xF4].second_max = 0x8F;
  return leads;
}

constexpr std::array<Lead, 256> kLeads = MakeLeads();

// Length of the ASCII run at the start of `bytes`, in whole words of eight.
size_t AsciiWords(std::string_view bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  return i;
}

// Length of the well-formed character at the start of `bytes`; 0: none is there. The common answer, without
// telling why.
size_t CharacterLength(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const auto goes_on = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const Lead lead = kLeads[byte(0)];
  if (lead.length < 2) return lead.length;
  if (lead.length > bytes.size() || byte(1) < lead.second_min || byte(1) > lead.second_max) return 0;
  if (lead.length > 2 && !goes_on(2)) return 0;
  if (lead.length > 3 && !goes_on(3)) return 0;
  return lead.length;
}

}  // namespace

Utf8Unit NextUtf8Unit(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const Lead lead = kLeads[byte(0)];
  if (lead.length == 0) return {Utf8Kind::kIllFormed, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kCutOff, i};
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte(i) < min || byte(i) > max) return {Utf8Kind::kIllFormed, i};
  }
  return {Utf8Kind::kCharacter, lead.length};
}

bool IsUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    bytes.remove_prefix(AsciiWords(bytes));
    // A word's worth of units between two looks at the fast path.
    for (int i = 0; i < 8 && !bytes.empty(); ++i) {
      const size_t length = CharacterLength(bytes);
      if (length == 0) return false;
      bytes.remove_prefix(length);
    }
  }
  return true;
}

void AppendRepaired(std::string_view bytes, std::string& text) {
  while (!bytes.empty()) {
    const Utf8Unit unit = NextUtf8Unit(bytes);
    text += unit.kind == Utf8Kind::kCharacter ? bytes.substr(0, unit.length) : kReplacementCharacter;
    bytes.remove_prefix(unit.length);
  }
}

std::string RepairUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  AppendRepaired(bytes, text);
  return text;
}

std::string Utf8Repairer::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Unit unit = NextUtf8Unit(rest);
    if (unit.kind == Utf8Kind::kCutOff) break;
    text += unit.kind == Utf8Kind::kCharacter ? rest.substr(0, unit.length) : kReplacementCharacter;
    rest.remove_prefix(unit.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Utf8Repairer::Flush() {
  std::string text = RepairUtf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace millrace::text
