#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace::text {

// What the splitting rules of the released tokenizer ask about a code point. The groups are disjoint, except
// that CR and LF are white space too. The characters of the rules' CJK ranges have groups of their own, so
// that no run crosses the border of such a range.
enum CharClass : uint8_t {
  kOtherChar = 0,     // control, format, unassigned: in no rule
  kWordChar = 1,      // letters and marks, \p{L} \p{M}
  kPunctuation = 2,   // \p{P} \p{S}
  kSpace = 4,         // \s: Unicode White_Space
  kBreak = 8,         // CR and LF
  kNumber = 16,       // \p{N}
  kCjkWordChar = 32,  // the first two, in U+4E00-U+9FA5 and U+3040-U+30FF
  kCjkPunctuation = 64,
  kCjkOther = 128,  // unassigned there
};

// The class of every code point, from ICU. 1.1 MB; immutable.
class CharClasses {
 public:
  CharClasses();
  uint8_t Of(uint32_t code_point) const { return classes_[code_point]; }

 private:
  std::vector<uint8_t> classes_;  // [0x110000], CharClass bits
};

// Cuts text into the pieces inside which byte pairs are merged. The released rules are three
// regular-expression passes; because each pass takes every piece of the one before for a text of its own, one
// pass over the characters gives the same cuts, in linear time whatever the text is.
class PieceSplitter {
 public:
  // `text` is valid UTF-8; `classes` and `text` outlive the splitter.
  PieceSplitter(const CharClasses& classes, std::string_view text) : classes_(classes), text_(text) {}

  // The next piece, never empty; an empty view at the end. Pieces concatenate to the text.
  std::string_view Next() {
    if (begin_ == text_.size()) return {};
    const size_t end = PieceEnd(begin_);
    const std::string_view piece = text_.substr(begin_, end - begin_);
    begin_ = end;
    return piece;
  }

 private:
  struct Char {
    uint8_t classes = 0;
    uint8_t length = 0;
  };
  Char At(size_t i) const {
    const auto byte = static_cast<uint8_t>(text_[i]);
    return byte < 0x80 ? Char{classes_.Of(byte), 1} : AtLongCharacter(i);
  }
  Char AtLongCharacter(size_t i) const;
  // The classes at `i`; those of a number at the end of the text, because there the rules see an end as well.
  uint8_t ClassesAt(size_t i) const { return i < text_.size() ? At(i).classes : uint8_t{kNumber}; }

  size_t PieceEnd(size_t i) const;
  size_t NumberEnd(size_t i) const;
  size_t CjkEnd(size_t i, Char first) const;
  size_t RunEnd(size_t i, uint8_t classes) const;
  size_t PunctuationEnd(size_t i) const;
  size_t SpaceEnd(size_t i) const;
  size_t UnmatchedEnd(size_t i, uint8_t unmatched, uint8_t word) const;

  const CharClasses& classes_;
  std::string_view text_;
  size_t begin_ = 0;
};

}  // namespace millrace::text
