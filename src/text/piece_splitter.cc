#include "text/piece_splitter.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <utility>

namespace millrace::text {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr std::pair<uint32_t, uint32_t> kCjkRanges[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};
constexpr uint8_t kAnyCjk = kCjkWordChar | kCjkPunctuation | kCjkOther;

uint8_t ClassOfCategory(UCharCategory category) {
  const uint32_t mask = U_MASK(category);
  if (mask & (U_GC_L_MASK | U_GC_M_MASK)) return kWordChar;
  if (mask & U_GC_N_MASK) return kNumber;
  if (mask & (U_GC_P_MASK | U_GC_S_MASK)) return kPunctuation;
  if (mask & U_GC_Z_MASK) return kSpace;
  return kOtherChar;
}

uint8_t InCjkRange(uint8_t char_class) {
  if (char_class == kWordChar) return kCjkWordChar;
  if (char_class == kPunctuation) return kCjkPunctuation;
  if (char_class == kOtherChar) return kCjkOther;
  return char_class;
}

UBool FillRange(const void* context, UChar32 start, UChar32 limit, UCharCategory category) {
  auto& classes = *static_cast<std::vector<uint8_t>*>(const_cast<void*>(context));
  std::fill(classes.begin() + start, classes.begin() + limit, ClassOfCategory(category));
  return true;
}

bool IsAsciiLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

CharClasses::CharClasses() : classes_(kCodePoints) {
  u_enumCharTypes(FillRange, &classes_);
  // White space that is not a separator by category.
  std::fill(classes_.begin() + '\t', classes_.begin() + '\r' + 1, kSpace);
  classes_[0x85] = kSpace;
  classes_['\r'] = kSpace | kBreak;
  classes_['\n'] = kSpace | kBreak;
  for (const auto& [first, last] : kCjkRanges) {
    for (uint32_t c = first; c <= last; ++c) classes_[c] = InCjkRange(classes_[c]);
  }
}

// Of two bytes and more.
PieceSplitter::Char PieceSplitter::AtLongCharacter(size_t i) const {
  const auto byte = [&](size_t k) -> uint32_t { return static_cast<uint8_t>(text_[i + k]); };
  const uint32_t lead = byte(0);
  if (lead < 0xE0) return {classes_.Of((lead & 0x1F) << 6 | (byte(1) & 0x3F)), 2};
  if (lead < 0xF0) return {classes_.Of((lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)), 3};
  return {
      classes_.Of((lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F)),
      4};
}

// Pass 1, pass 2, then the alternatives of pass 3 in their order. Numbers and CJK characters end every run of
// pass 3 by being in none of its classes.
size_t PieceSplitter::PieceEnd(size_t i) const {
  const Char first = At(i);
  const size_t next = i + first.length;
  if (first.classes & kNumber) return NumberEnd(next);
  if (first.classes & kAnyCjk) return CjkEnd(next, first);
  if (first.classes & kWordChar) return RunEnd(next, kWordChar);
  if (first.classes & kPunctuation) {
    // [ASCII punctuation][A-Za-z]+ : a word keeps the mark in front of it, up to its first other letter.
    if (first.length == 1 && next < text_.size() && IsAsciiLetter(text_[next])) {
      size_t end = next + 1;
      while (end < text_.size() && IsAsciiLetter(text_[end])) ++end;
      return end;
    }
    return PunctuationEnd(next);
  }
  const uint8_t following = ClassesAt(next);
  if (first.classes & kSpace) {
    if (!(first.classes & kBreak) && (following & kWordChar)) return RunEnd(next, kWordChar);
    if (text_[i] == ' ' && (following & kPunctuation)) return PunctuationEnd(next);
    return SpaceEnd(i);
  }
  if (following & kWordChar) return RunEnd(next, kWordChar);
  return UnmatchedEnd(next, kOtherChar, kWordChar);
}

// A run of CJK characters goes through pass 3 as well, by itself; `i` is after its first character.
size_t PieceSplitter::CjkEnd(size_t i, Char first) const {
  if (first.classes & kCjkPunctuation) return RunEnd(i, kCjkPunctuation);
  if ((first.classes & kCjkWordChar) || (ClassesAt(i) & kCjkWordChar)) return RunEnd(i, kCjkWordChar);
  return UnmatchedEnd(i, kCjkOther, kCjkWordChar);
}

// \p{N}{1,3}, after the first.
size_t PieceSplitter::NumberEnd(size_t i) const {
  for (int more = 0; more < 2 && i < text_.size(); ++more) {
    const Char c = At(i);
    if (!(c.classes & kNumber)) break;
    i += c.length;
  }
  return i;
}

size_t PieceSplitter::RunEnd(size_t i, uint8_t classes) const {
  while (i < text_.size()) {
    const Char c = At(i);
    if (!(c.classes & classes)) break;
    i += c.length;
  }
  return i;
}

// [\p{P}\p{S}]*[\r\n]*
size_t PieceSplitter::PunctuationEnd(size_t i) const {
  return RunEnd(RunEnd(i, kPunctuation), kBreak);
}

// \s*[\r\n]+ | \s+(?!\S) | \s+
size_t PieceSplitter::SpaceEnd(size_t i) const {
  size_t end = i;
  size_t last = i;       // start of the run's last character
  size_t break_end = i;  // end of its last CR or LF
  while (end < text_.size()) {
    const Char c = At(end);
    if (!(c.classes & kSpace)) break;
    last = end;
    end += c.length;
    if (c.classes & kBreak) break_end = end;
  }
  if (break_end > i) return break_end;
  // The end of the text, and a number or CJK character, are the end of the text that this pass sees.
  if (ClassesAt(end) & (kNumber | kAnyCjk)) return end;
  return last > i ? last : end;  // the last white-space character stays with what follows
}

// Characters of the class `unmatched`, which no rule takes, up to one that begins a word with the `word`
// characters after it.
size_t PieceSplitter::UnmatchedEnd(size_t i, uint8_t unmatched, uint8_t word) const {
  while (i < text_.size()) {
    const Char c = At(i);
    if (c.classes != unmatched || (ClassesAt(i + c.length) & word)) break;
    i += c.length;
  }
  return i;
}

}  // namespace millrace::text
