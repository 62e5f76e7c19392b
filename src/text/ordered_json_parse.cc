#include <fmt/format.h>
#include <boost/json/basic_parser_impl.hpp>

#include <algorithm>
#include <exception>
#include <limits>

#include "formats/json.h"
#include "text/json_repair.h"
#include "text/ordered_json.h"

namespace millrace::text {
namespace {

namespace json = boost::json;
using json::error_code;

// Sorted by key and place, repeats stand together: the first keeps its place and takes the last one's value.
// Sorting, because a hash table would be quadratic for keys chosen to collide.
void MergeRepeatedKeys(OrderedJson::Object& members) {
  std::vector<size_t> order(members.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](size_t i) -> const std::string& { return members[i].key; });
  std::vector<bool> repeated(members.size(), false);
  bool any = false;
  size_t first = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    if (members[order[i]].key != members[order[first]].key) {
      first = i;
      continue;
    }
    members[order[first]].value = std::move(members[order[i]].value);
    repeated[order[i]] = any = true;
  }
  if (!any) return;
  size_t kept = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (repeated[i]) continue;
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.erase(members.begin() + static_cast<ptrdiff_t>(kept), members.end());
}

// Builds the value from the parser's events.
class TreeHandler {
 public:
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_key_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_string_size = std::numeric_limits<size_t>::max();

  void set_max_values(size_t max_values) { max_values_ = max_values; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) { return Open(); }
  bool on_object_end(size_t, error_code& ec) {
    OrderedJson::Object members = std::move(open_.back().members);
    open_.pop_back();
    MergeRepeatedKeys(members);
    return Add(OrderedJson(std::move(members)), ec);
  }
  bool on_array_begin(error_code&) { return Open(); }
  bool on_array_end(size_t, error_code& ec) {
    OrderedJson::Array items = std::move(open_.back().items);
    open_.pop_back();
    return Add(OrderedJson(std::move(items)), ec);
  }
  bool on_key_part(json::string_view part, size_t, error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t, error_code&) {
    text_.append(part.data(), part.size());
    open_.back().members.push_back({.key = std::exchange(text_, {}), .value = {}});
    open_.back().is_object = true;
    return true;
  }
  bool on_string_part(json::string_view part, size_t, error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view part, size_t, error_code& ec) {
    text_.append(part.data(), part.size());
    return Add(OrderedJson(std::exchange(text_, {})), ec);
  }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(int64_t, json::string_view text, error_code& ec) { return AddNumber(text, ec); }
  bool on_uint64(uint64_t, json::string_view text, error_code& ec) { return AddNumber(text, ec); }
  bool on_double(double value, json::string_view text, error_code& ec) {
    if (formats::NearestDouble({text.data(), text.size()}, value)) return AddNumber(text, ec);
    return Refuse(fmt::format("the number {} is too large", formats::Quoted({text.data(), text.size()})), ec);
  }
  bool on_bool(bool value, error_code& ec) { return Add(OrderedJson(value), ec); }
  bool on_null(error_code& ec) { return Add(OrderedJson(), ec); }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

  OrderedJson Release() { return std::move(root_); }
  // Why this handler refused; empty if it did not.
  const std::string& refusal() const { return refusal_; }
  bool too_many() const { return too_many_; }

 private:
  // An array or object whose end has not come; its members' last value is filled in when it is known.
  struct Container {
    bool is_object = false;
    OrderedJson::Array items;
    OrderedJson::Object members;
  };

  bool Open() {
    open_.emplace_back();
    return true;
  }

  bool Add(OrderedJson value, error_code& ec) {
    if (values_++ == max_values_) {
      too_many_ = true;
      return Refuse(fmt::format("it has more than {} values", max_values_), ec);
    }
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.back().value = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  bool AddNumber(json::string_view text, error_code& ec) {
    return Add(OrderedJson(OrderedJson::Number{std::string(text.data(), text.size())}), ec);
  }

  bool Refuse(std::string why, error_code& ec) {
    refusal_ = std::move(why);
    ec = json::make_error_code(json::error::exception);
    return false;
  }

  size_t max_values_ = 0;
  size_t values_ = 0;
  OrderedJson root_;
  std::vector<Container> open_;  // outermost first
  std::string text_;             // of the key or string that is being read
  std::string refusal_;
  bool too_many_ = false;
};

Result<OrderedJson> Parse(std::string_view text, const OrderedJsonLimits& limits) {
  json::parse_options options;
  options.max_depth = limits.max_depth;
  json::basic_parser<TreeHandler> parser(options);
  parser.handler().set_max_values(limits.max_values);
  error_code ec;
  const size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && used < text.size()) ec = json::make_error_code(json::error::extra_data);
  if (!ec) return parser.handler().Release();
  const std::string& refusal = parser.handler().refusal();
  if (parser.handler().too_many()) return Error(ErrorCode::kResourceExhausted, refusal);
  const std::string why =
      !refusal.empty() ? refusal
      : ec == json::make_error_code(json::error::too_deep)
          ? fmt::format("arrays and objects are nested deeper than {} levels", limits.max_depth)
          : ec.message();
  return Error(ErrorCode::kCorrupt,
               fmt::format("not valid JSON at {}: {}", formats::LineAndColumn(text, used), why));
}

}  // namespace

Result<OrderedJson> ParseOrderedJson(std::string_view text, const OrderedJsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error(
        ErrorCode::kResourceExhausted,
        fmt::format("the JSON text has {} bytes, at most {} are accepted", text.size(), limits.max_bytes));
  }
  try {
    return Parse(RepairJsonText(text), limits);
  } catch (const std::exception& e) {  // allocation failures
    return Error(ErrorCode::kResourceExhausted, fmt::format("the JSON text cannot be held: {}", e.what()));
  }
}

}  // namespace millrace::text
