#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::text {

enum class TagKind : uint8_t { kCalls, kInvoke, kParameter };

// One tag of the markup of tool calls, in any spelling that models use (chat encoding, section 11, rows 10
// and 11): `<` or `</`, the mark, at most one space, the name; openers then attributes; `>` or `/>`.
struct MarkupTag {
  TagKind kind = TagKind::kCalls;
  bool closes = false;        // `</...`
  bool self_closing = false;  // `.../>`
  // Attributes of an opener, as text; of one that is given twice the last.
  std::optional<std::string> name;
  std::optional<std::string> string;
};

// A set of tags to look for.
class TagSet {
 public:
  constexpr TagSet() = default;
  constexpr TagSet Opener(TagKind kind) const { return TagSet(bits_ | Bit(kind, false)); }
  constexpr TagSet Closer(TagKind kind) const { return TagSet(bits_ | Bit(kind, true)); }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool Has(TagKind kind, bool closes) const { return (bits_ & Bit(kind, closes)) != 0; }

 private:
  explicit constexpr TagSet(unsigned bits) : bits_(bits) {}
  static constexpr unsigned Bit(TagKind kind, bool closes) {
    return 1U << (2 * static_cast<unsigned>(kind) + (closes ? 1 : 0));
  }
  unsigned bits_ = 0;
};

// How the mark of well-formed markup comes.
enum class MarkInput : uint8_t {
  kToken,    // as the control token: the letters alone are text
  kSpelled,  // as letters
};

// Recognises one tag in symbols (see completion_symbols.h) that come one by one. Decides at the first symbol
// that makes a tag of the set impossible.
class TagMatcher {
 public:
  explicit TagMatcher(MarkInput mark_input) : mark_input_(mark_input) {}

  // After a `<`: watches for the tags of `wanted`.
  void Start(TagSet wanted);

  enum class Progress : uint8_t {
    kPartial,
    kComplete,  // `symbol` was the last of the tag
    kFailed,    // with `symbol` this is no tag; it is not part of what was matched
  };
  Progress Push(char symbol);

  // After kComplete.
  const MarkupTag& tag() const { return tag_; }

  // What is matched so far holds the whole mark: no text that a reader should see, even unfinished.
  bool has_mark() const;
  bool closes() const { return tag_.closes; }
  // After kFailed: this was an opener up to attributes that cannot be read.
  bool broken_opener() const { return part_ > Part::kName; }
  TagKind kind() const { return tag_.kind; }

 private:
  // The part of the tag that the next symbol belongs to.
  enum class Part : uint8_t {
    kSlash,
    kMark,
    kSpace,
    kName,
    kGap,
    kKey,
    kEquals,
    kValue,
    kAfterValue,
    kClose
  };

  bool Accept(char symbol);
  bool AcceptMark(char symbol);
  bool AcceptName(char symbol);
  bool AcceptInTag(char symbol, bool gap);
  void EndAttribute();

  MarkInput mark_input_;
  TagSet wanted_;
  Part part_ = Part::kSlash;
  size_t size_ = 0;
  bool complete_ = false;
  std::string mark_;
  std::string word_;   // the name, then each key
  std::string value_;  // of an attribute, as symbols
  MarkupTag tag_;
};

}  // namespace millrace::text
