#include "formats/tokenizer_layout.h"

#include <fmt/format.h>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <array>
#include <string>
#include <string_view>

#include "formats/json.h"

namespace millrace::formats {
namespace {

namespace json = boost::json;

constexpr std::string_view kReleasedLayout = R"json({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [],
  "normalizer": null,
  "pre_tokenizer": {
    "type": "Sequence",
    "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
      {"type": "Split", "pattern": {"Regex": "[一-龥぀-ゟ゠-ヿ]+"}, "behavior": "Isolated", "invert": false},
      {"type": "Split", "pattern": {"Regex": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
    ]
  },
  "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "vocab": {},
    "merges": []
  }
})json";

// Fields that do not change ids: what the reader takes out itself, and what concerns offsets only. For the
// two ByteLevel steps after the model the type alone counts.
constexpr std::array<std::string_view, 7> kFreeFields = {
    "version", "added_tokens", "model.vocab", "model.merges", "model.fuse_unk", "post_processor.", "decoder.",
};

bool IsFree(std::string_view path) {
  if (path.ends_with(".type")) return false;
  if (path.ends_with(".trim_offsets")) return true;
  for (const std::string_view field : kFreeFields) {
    if (path == field || (field.ends_with('.') && path.starts_with(field))) return true;
  }
  return false;
}

// Some writers put CR and LF into the patterns as characters, others as the escapes \r and \n.
std::string WithEscapedBreaks(std::string_view pattern) {
  std::string escaped;
  for (const char c : pattern) {
    if (c == '\r') {
      escaped += "\\r";
    } else if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string Shown(const json::value& value) {
  const std::string text = json::serialize(value);
  return text.size() <= 200 ? text : text.substr(0, 200) + "...";
}

Error Differs(std::string_view path, const json::value* found, const json::value& expected) {
  return Error(
      ErrorCode::kMismatch,
      fmt::format("{} is {}, but millrace splits and decodes text by the rules of DeepSeek-V3, V4 and "
                  "V4.1 only, where it is {}; use the tokenizer.json of such a checkpoint",
                  path, found == nullptr ? "missing" : Shown(*found), Shown(expected)));
}

// Spellings of "none" that the tokenizers library treats alike.
bool IsNothing(const json::value& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.get_bool();
  if (value.is_string()) return value.get_string().empty();
  if (!value.is_object()) return false;
  const json::value* steps = value.get_object().if_contains("normalizers");
  return steps != nullptr && steps->is_array() && steps->get_array().empty();
}

bool SameScalar(const json::value& found, const json::value& expected) {
  if (IsNothing(expected)) return IsNothing(found);
  if (found.is_string() && expected.is_string()) {
    return WithEscapedBreaks(found.get_string()) == WithEscapedBreaks(expected.get_string());
  }
  return found == expected;
}

Status CheckValue(const std::string& path, const json::value& found, const json::value& expected);

Status CheckObject(const std::string& prefix, const json::object& found, const json::object& expected) {
  for (const auto& field : expected) {
    const std::string path = prefix + std::string(field.key());
    if (IsFree(path)) continue;
    const json::value* value = found.if_contains(field.key());
    if (value == nullptr) {
      if (IsNothing(field.value())) continue;
      return Differs(path, nullptr, field.value());
    }
    MILLRACE_RETURN_IF_ERROR(CheckValue(path, *value, field.value()));
  }
  for (const auto& field : found) {
    const std::string path = prefix + std::string(field.key());
    if (expected.contains(field.key()) || IsFree(path) || IsNothing(field.value())) continue;
    return Error(
        ErrorCode::kMismatch,
        fmt::format("the field {} with value {} is not known; the released tokenizer.json has no such "
                    "field, and ignoring it could change token ids",
                    Quoted(path), Shown(field.value())));
  }
  return {};
}

Status CheckValue(const std::string& path, const json::value& found, const json::value& expected) {
  // A checkpoint without the post-processing step gives the same ids.
  if (path == "post_processor" && found.is_null()) return {};
  if (expected.is_object()) {
    if (!found.is_object()) return Differs(path, &found, expected);
    return CheckObject(path + ".", found.get_object(), expected.get_object());
  }
  if (expected.is_array()) {
    const json::array& steps = expected.get_array();
    if (!found.is_array() || found.get_array().size() != steps.size()) return Differs(path, &found, expected);
    for (size_t i = 0; i < steps.size(); ++i) {
      MILLRACE_RETURN_IF_ERROR(CheckValue(fmt::format("{}[{}]", path, i), found.get_array()[i], steps[i]));
    }
    return {};
  }
  if (!SameScalar(found, expected)) return Differs(path, &found, expected);
  return {};
}

}  // namespace

json::object ReleasedTokenizerLayout() {
  return json::parse(json::string_view(kReleasedLayout.data(), kReleasedLayout.size())).get_object();
}

Status CheckTokenizerLayout(const json::object& file) {
  return CheckObject("", file, ReleasedTokenizerLayout());
}

}  // namespace millrace::formats
