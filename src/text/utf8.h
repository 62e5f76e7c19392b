#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the start of a byte string.
enum class Utf8Kind : uint8_t {
  kCharacter,  // one well-formed character
  kIllFormed,  // a maximal subpart that no further byte can complete; becomes one U+FFFD
  kCutOff,     // the string ends inside a character that further bytes could complete
};
struct Utf8Unit {
  Utf8Kind kind{};
  size_t length = 0;  // bytes, 1 to 4
};

// `bytes` is not empty. Units follow the Unicode standard's recommended practice (maximal subparts).
Utf8Unit NextUtf8Unit(std::string_view bytes);

bool IsUtf8(std::string_view bytes);

// `bytes` with one U+FFFD for each ill-formed or cut-off unit.
void AppendRepaired(std::string_view bytes, std::string& text);
std::string RepairUtf8(std::string_view bytes);

}  // namespace millrace::text
