#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace millrace::text {

// A completion as the parsers see it: valid UTF-8 in which each control token that has a meaning there is one
// byte that UTF-8 never uses. So a control token cannot be confused with text that spells it.
inline constexpr char kDsmlSymbol = '\xF8';        // `｜DSML｜`
inline constexpr char kThinkBeginSymbol = '\xF9';  // `<think>`
inline constexpr char kThinkEndSymbol = '\xFA';    // `</think>`
inline constexpr char kEndSymbol = '\xFB';         // `<｜end▁of▁sentence｜>`

inline bool IsControlSymbol(char symbol) {
  return static_cast<uint8_t>(symbol) >= 0xF8;
}

// The literal text of a control symbol.
std::string_view SymbolLiteral(char symbol);
// Bytes that symbols take as text.
size_t SpelledSize(std::string_view symbols);
// Appends `symbols` as text, control tokens by their literals.
void AppendSpelled(std::string_view symbols, std::string& text);

// Makes symbols of what a model generated. Holds back the bytes of an unfinished character and, of spelled
// text, what may begin a literal. One stream, one thread.
class SymbolReader {
 public:
  // Bytes of an ordinary token.
  void PushBytes(std::string_view bytes, std::string& symbols) { symbols += repairer_.Push(bytes); }
  // A control token; a character that it interrupts becomes U+FFFD.
  void PushControl(char symbol, std::string& symbols) {
    Break(symbols);
    symbols += symbol;
  }
  // A control token without a meaning.
  void Break(std::string& symbols) { symbols += repairer_.Flush(); }

  // Text in which `<think>`, `</think>` and the end token are spelled out. The mark `｜DSML｜` stays text:
  // TagMatcher knows its spellings.
  void PushSpelled(std::string_view bytes, std::string& symbols);

  // The end: releases what is held.
  void Finish(std::string& symbols);

 private:
  void ScanLiterals(std::string_view text, std::string& symbols);

  Utf8Repairer repairer_;
  std::string literal_;  // the longest tail of the spelled text that begins a literal
};

}  // namespace millrace::text
