#include "text/call_arguments.h"

#include <utility>

namespace millrace::text {
namespace {

constexpr std::string_view kRest = "arguments";

std::optional<OrderedJson> ReadObject(std::string_view text) {
  Result<OrderedJson> value = ParseOrderedJson(text);
  if (!value.ok() || value->if_object() == nullptr) return std::nullopt;
  return *std::move(value);
}

// A value of the arguments, nested so little that a reader of all of them can still read it.
OrderedJson JsonOrText(std::string text) {
  constexpr OrderedJsonLimits kLimits;
  Result<OrderedJson> value = ParseOrderedJson(text, {.max_depth = kLimits.max_depth - 1});
  return value.ok() ? *std::move(value) : OrderedJson(std::move(text));
}

}  // namespace

void CallArguments::BeginParameter(std::string name, const std::optional<std::string>& string,
                                   std::string& out) {
  if (lone_) Write(*std::exchange(lone_, std::nullopt), out);
  const bool declared_text = tool_ != nullptr && tool_->TakesString(name);
  const bool is_text = string == "true" || (string != "false" && declared_text);
  const bool held = !any_parameter_ && MayHoldAll(name);
  any_parameter_ = true;
  open_ = {.name = std::move(name), .is_text = is_text, .held = held, .written = false, .value = {}};
}

void CallArguments::AppendText(std::string_view text, std::string& out) {
  if (open_->held || !open_->is_text) {
    open_->value += text;
    return;
  }
  if (!std::exchange(open_->written, true)) {
    WriteName(open_->name, out);
    out += '"';
  }
  AppendJsonEscaped(text, out);
}

void CallArguments::EndParameter(std::string& out) {
  Parameter done = *std::exchange(open_, std::nullopt);
  if (done.written) {
    out += '"';
    return;
  }
  OrderedJson value = done.is_text ? OrderedJson(std::move(done.value)) : JsonOrText(std::move(done.value));
  OrderedJson::Member member{.key = std::move(done.name), .value = std::move(value)};
  if (done.held) {
    lone_ = std::move(member);
  } else {
    Write(member, out);
  }
}

void CallArguments::Close(std::string& out) {
  if (lone_) {
    if (const auto all = Unwrap(lone_->value)) {
      out += PythonJson(*all);
      return;
    }
    Write(*lone_, out);
  }
  out += any_written_ ? "}" : "{}";
}

void CallArguments::CloseWithBody(std::string_view body, std::string& out) {
  const std::optional<OrderedJson> object = ReadObject(body);
  if (!object) {
    const size_t end = body.find_last_not_of(" \t\r\n");
    Write({.key = std::string(kRest), .value = OrderedJson(std::string(body.substr(0, end + 1)))}, out);
    out += '}';
    return;
  }
  const OrderedJson::Object& members = *object->if_object();
  const bool wraps = members.size() == 1 && MayHoldAll(members[0].key);
  const std::optional<OrderedJson> all = wraps ? Unwrap(members[0].value) : std::nullopt;
  out += PythonJson(all ? *all : *object);
}

bool CallArguments::IsObject(std::string_view body) {
  return ReadObject(body).has_value();
}

void CallArguments::WriteName(std::string_view name, std::string& out) {
  out += std::exchange(any_written_, true) ? ", \"" : "{\"";
  AppendJsonEscaped(name, out);
  out += "\": ";
}

void CallArguments::Write(const OrderedJson::Member& member, std::string& out) {
  WriteName(member.key, out);
  out += PythonJson(member.value);
}

bool CallArguments::MayHoldAll(const std::string& name) const {
  return (name == kRest || name == "input") && tool_ != nullptr && !tool_->HasProperty(name);
}

std::optional<OrderedJson> CallArguments::Unwrap(const OrderedJson& value) const {
  std::optional<OrderedJson> all = value;
  if (const std::string* text = value.if_string()) all = ReadObject(*text);
  if (all && !tool_->Fits(*all)) all.reset();
  return all;
}

}  // namespace millrace::text
