#include "model/engram_map.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>
#include <limits>
#include <string>

#include "formats/json.h"
#include "formats/text_file.h"

namespace millrace::model {
namespace {

namespace json = boost::json;

// Integers stand as numbers, or as decimal strings where they exceed 2^53.
Result<uint64_t> ReadInteger(const json::value& value) {
  if (const int64_t* n = value.if_int64(); n != nullptr && *n >= 0) return static_cast<uint64_t>(*n);
  if (const uint64_t* n = value.if_uint64()) return *n;
  if (const json::string* text = value.if_string()) {
    uint64_t n = 0;
    const char* end = text->data() + text->size();
    const auto [stop, failure] = std::from_chars(text->data(), end, n);
    if (failure == std::errc() && stop == end) return n;
  }
  return Error(ErrorCode::kCorrupt,
               fmt::format("found {}, expected a non-negative integer", json::serialize(value)));
}

// Flattens nested arrays of integers, in order.
template <typename T>
Status Flatten(const json::value& value, std::vector<T>& out) {
  if (const json::array* array = value.if_array()) {
    for (const json::value& item : *array) MILLRACE_RETURN_IF_ERROR(Flatten(item, out));
    return {};
  }
  MILLRACE_ASSIGN_OR_RETURN(const uint64_t n, ReadInteger(value));
  if (n > static_cast<uint64_t>(std::numeric_limits<T>::max())) {
    return Error(ErrorCode::kCorrupt, fmt::format("{} is too large", n));
  }
  out.push_back(static_cast<T>(n));
  return {};
}

Result<const json::value*> Member(const json::object& object, const char* key) {
  if (const json::value* value = object.if_contains(key)) return value;
  return Error(ErrorCode::kCorrupt, fmt::format("'{}' is missing", key));
}

template <typename T>
Status ReadPerLayer(const json::object& object, const char* key, std::vector<std::vector<T>>& out) {
  MILLRACE_ASSIGN_OR_RETURN(const json::value* value, Member(object, key));
  const json::array* layers = value->if_array();
  if (layers == nullptr)
    return Error(ErrorCode::kCorrupt, fmt::format("'{}' is not an array of layers", key));
  for (const json::value& layer : *layers) {
    const Status read = Flatten(layer, out.emplace_back());
    if (!read.ok()) return read.error().In(key);
  }
  return {};
}

Result<EngramMap> Parse(std::string_view text) {
  MILLRACE_ASSIGN_OR_RETURN(const json::value root, formats::ParseJson(text));
  const json::object* object = root.if_object();
  if (object == nullptr) return Error(ErrorCode::kCorrupt, "not a JSON object");
  EngramMap map;
  MILLRACE_ASSIGN_OR_RETURN(const json::value* size, Member(*object, "compressed_vocab_size"));
  MILLRACE_ASSIGN_OR_RETURN(const uint64_t n_classes, ReadInteger(*size));
  map.compressed_vocab_size = static_cast<int64_t>(n_classes);
  MILLRACE_ASSIGN_OR_RETURN(const json::value* token_map, Member(*object, "token_map"));
  MILLRACE_RETURN_IF_ERROR(Flatten(*token_map, map.token_map));
  MILLRACE_RETURN_IF_ERROR(ReadPerLayer(*object, "primes", map.primes));
  MILLRACE_RETURN_IF_ERROR(ReadPerLayer(*object, "offsets", map.offsets));
  MILLRACE_RETURN_IF_ERROR(ReadPerLayer(*object, "multipliers", map.multipliers));
  return map;
}

}  // namespace

Result<EngramMap> ReadEngramMap(const std::filesystem::path& file) {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, formats::ReadTextFile(file, kMaxBytes));
  Result<EngramMap> map = Parse(text);
  if (!map.ok()) return map.error().In(file.string());
  return map;
}

}  // namespace millrace::model
