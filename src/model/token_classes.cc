// The compressed ids of the n-gram hash: tokens whose texts differ only in case, accents, width or spacing
// share one class.
#include <fmt/format.h>
#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "formats/byte_level.h"
#include "model/engram_hash.h"

namespace millrace::model {
namespace {

constexpr UChar32 kReplacement = 0xFFFD;

bool IsAccent(UChar32 c) {
  return (U_GET_GC_MASK(c) & U_GC_M_MASK) != 0;
}  // Mn, Mc and Me

bool IsRunSpace(UChar32 c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// Full lower-case mapping of one code point by itself: a sigma is never final here.
icu::UnicodeString LowerCase(UChar32 c) {
  return icu::UnicodeString(c).toLower(icu::Locale::getRoot());
}

// Drops accents, lowers the case, and makes each run of space, tab, CR and LF one space.
icu::UnicodeString Fold(const icu::UnicodeString& decomposed) {
  icu::UnicodeString folded;
  bool in_run = false;
  for (int32_t i = 0; i < decomposed.length(); i = decomposed.moveIndex32(i, 1)) {
    const UChar32 c = decomposed.char32At(i);
    if (IsAccent(c)) continue;
    if (IsRunSpace(c)) {
      if (!in_run) folded.append(u' ');
      in_run = true;
    } else {
      folded.append(LowerCase(c));
      in_run = false;
    }
  }
  return folded;
}

icu::UnicodeString Trim(const icu::UnicodeString& text) {
  int32_t begin = 0;
  int32_t end = text.length();
  // All white space lies in the basic plane, so code units do.
  while (begin < end && u_isUWhiteSpace(text.charAt(begin))) ++begin;
  while (end > begin && u_isUWhiteSpace(text.charAt(end - 1))) --end;
  return icu::UnicodeString(text, begin, end - begin);
}

// Texts with one class have one key (v41-text, section 6).
class KeyMaker {
 public:
  static Result<KeyMaker> Create() {
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* nfkc = icu::Normalizer2::getNFKCInstance(status);
    const icu::Normalizer2* nfd = icu::Normalizer2::getNFDInstance(status);
    if (U_FAILURE(status)) return IcuFailed(status);
    return KeyMaker(nfkc, nfd);
  }

  // `raw` is the token's vocabulary string and `bytes` what it stands for.
  Result<std::string> Key(std::string_view raw, const std::string& bytes) const {
    const icu::UnicodeString text = icu::UnicodeString::fromUTF8(bytes);
    if (text.indexOf(kReplacement) >= 0) return std::string(raw);  // a fragment of a character
    UErrorCode status = U_ZERO_ERROR;
    const icu::UnicodeString decomposed = nfd_->normalize(nfkc_->normalize(text, status), status);
    if (U_FAILURE(status)) return IcuFailed(status);
    icu::UnicodeString folded = Fold(decomposed);
    const bool is_one_space = folded.length() == 1 && folded.charAt(0) == u' ';
    if (!is_one_space) folded = Trim(folded);
    if (folded.isEmpty()) return bytes;
    std::string key;
    folded.toUTF8String(key);
    return key;
  }

 private:
  KeyMaker(const icu::Normalizer2* nfkc, const icu::Normalizer2* nfd) : nfkc_(nfkc), nfd_(nfd) {}

  static Error IcuFailed(UErrorCode status) {
    return Error(
        ErrorCode::kUnavailable,
        fmt::format("Unicode normalisation failed ({}); check the ICU installation", u_errorName(status)));
  }

  const icu::Normalizer2* nfkc_;  // owned by ICU
  const icu::Normalizer2* nfd_;
};

}  // namespace

Result<TokenClasses> ComputeTokenClasses(const formats::TokenizerData& tokenizer, int64_t vocab_size) {
  const auto n_tokens = static_cast<int64_t>(tokenizer.tokens.size());
  if (n_tokens > vocab_size) {
    return Error(
        ErrorCode::kMismatch,
        fmt::format("the tokenizer has {} ids, but the model's vocab_size is {}; use the tokenizer.json and "
                    "config.json of one checkpoint",
                    n_tokens, vocab_size));
  }
  MILLRACE_ASSIGN_OR_RETURN(const KeyMaker keys, KeyMaker::Create());
  std::vector<bool> is_added(static_cast<size_t>(n_tokens), false);
  for (const formats::AddedToken& token : tokenizer.added_tokens)
    is_added[static_cast<size_t>(token.id)] = true;

  TokenClasses classes;
  classes.class_of.reserve(static_cast<size_t>(vocab_size));
  std::unordered_map<std::string, int32_t> class_of_key;
  class_of_key.reserve(static_cast<size_t>(vocab_size));
  const std::string left_out;  // ids that the file has no token for
  for (int64_t id = 0; id < vocab_size; ++id) {
    const std::string& raw = id < n_tokens ? tokenizer.tokens[static_cast<size_t>(id)] : left_out;
    std::string bytes = raw;
    if (id < n_tokens && !is_added[static_cast<size_t>(id)]) {
      MILLRACE_ASSIGN_OR_RETURN(bytes, formats::ByteLevelDecode(raw));
    }
    MILLRACE_ASSIGN_OR_RETURN(std::string key, keys.Key(raw, bytes));
    const auto next = static_cast<int32_t>(class_of_key.size());
    classes.class_of.push_back(class_of_key.try_emplace(std::move(key), next).first->second);
  }
  classes.n_classes = static_cast<int64_t>(class_of_key.size());
  return classes;
}

}  // namespace millrace::model
