#include "api/json_body.h"

#include <fmt/format.h>
#include <boost/json/memory_resource.hpp>
#include <boost/json/parser.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>

#include "text/utf8.h"

namespace millrace::api {
namespace {

// Refuses to hold more than a fixed number of bytes.
class BoundedResource final : public boost::json::memory_resource {
 public:
  explicit BoundedResource(size_t max_bytes) : left_(max_bytes) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    // The library frees under another alignment than it asked for; below the default they are all one.
    if (bytes > left_ || alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__) throw std::bad_alloc();
    void* const memory = ::operator new(bytes);
    left_ -= bytes;
    return memory;
  }
  void do_deallocate(void* memory, size_t bytes, size_t /*alignment*/) override {
    ::operator delete(memory);
    left_ += bytes;
  }
  bool do_is_equal(const boost::json::memory_resource& other) const noexcept override {
    return this == &other;
  }

  size_t left_;
};

// The code unit of an escape "\uXXXX" at `at`; nothing if there is no such escape.
std::optional<uint32_t> EscapedUnit(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return std::nullopt;
  uint32_t unit = 0;
  for (size_t i = 2; i < 6; ++i) {
    const char c = text[at + i];
    uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint32_t>(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<uint32_t>(c - 'A') + 10;
    } else {
      return std::nullopt;
    }
    unit = unit << 4 | digit;
  }
  return unit;
}

bool IsHighSurrogate(uint32_t unit) {
  return unit >= 0xD800 && unit <= 0xDBFF;
}
bool IsLowSurrogate(uint32_t unit) {
  return unit >= 0xDC00 && unit <= 0xDFFF;
}

// Appends the escape sequence at `at`, repaired, and returns its length in `text`.
size_t AppendEscape(std::string_view text, size_t at, std::string& out) {
  const std::optional<uint32_t> unit = EscapedUnit(text, at);
  if (!unit) {  // another escape, or a broken one that the parser will refuse
    const size_t length = at + 1 < text.size() && static_cast<uint8_t>(text[at + 1]) < 0x80 ? 2 : 1;
    out.append(text, at, length);
    return length;
  }
  if (IsHighSurrogate(*unit)) {
    const std::optional<uint32_t> next = EscapedUnit(text, at + 6);
    if (next && IsLowSurrogate(*next)) {
      out.append(text, at, 12);
      return 12;
    }
  }
  if (IsHighSurrogate(*unit) || IsLowSurrogate(*unit)) {
    out += "\\ufffd";
  } else {
    out.append(text, at, 6);
  }
  return 6;
}

ApiError NotJson(std::string why) {
  return {ApiErrorKind::kInvalidJson, std::move(why), ""};
}

}  // namespace

std::string RepairJsonText(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '\\') {
      at += AppendEscape(text, at, out);
      continue;
    }
    const size_t run = std::min(text.find('\\', at), text.size()) - at;
    text::AppendRepaired(text.substr(at, run), out);
    at += run;
  }
  return out;
}

std::variant<boost::json::object, ApiError> ParseJsonBody(std::string_view body, const JsonLimits& limits) {
  if (body.empty()) return NotJson("The request body is empty; a JSON object was expected.");
  try {
    const std::string text = RepairJsonText(body);
    boost::json::parse_options options;
    options.max_depth = limits.max_depth;
    boost::json::parser parser({}, options);
    parser.reset(boost::json::make_shared_resource<BoundedResource>(limits.max_memory_bytes));
    boost::system::error_code failure;
    const size_t parsed = parser.write(text, failure);
    if (failure) {
      return NotJson(fmt::format("The request body is not valid JSON: {} at byte {} of {}.",
                                 failure.message(), parsed, text.size()));
    }
    boost::json::value root = parser.release();
    if (!root.is_object()) return NotJson("The request body is JSON, but not an object.");
    return std::move(root.get_object());
  } catch (const std::bad_alloc&) {
    return ApiError{ApiErrorKind::kBodyTooLarge,
                    fmt::format("The request body needs more than {} MiB in memory; send fewer values.",
                                limits.max_memory_bytes >> 20),
                    ""};
  } catch (const std::exception& error) {  // a string or an array longer than the library holds
    return NotJson(fmt::format("The request body cannot be read: {}.", error.what()));
  }
}

}  // namespace millrace::api
