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

// The same for a stream of bytes, never handing out part of a character. What all calls return concatenates
// to the repair of the whole. One stream, one thread.
class Utf8Repairer {
 public:
  // The text that `bytes` complete, possibly empty. What no continuation can make valid becomes U+FFFD at
  // once.
  std::string Push(std::string_view bytes);
  // The end of the stream: U+FFFD if a character was left unfinished. The repairer is then as new.
  std::string Flush();

 private:
  std::string pending_;  // the first bytes of a character, at most three
};

}  // namespace millrace::text
