#include "text/control_ids.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace millrace::text {
namespace {

struct Name {
  TokenId ControlIds::*id;
  std::string_view text;
};

constexpr Name kNames[] = {
    {&ControlIds::bos, "<｜begin▁of▁sentence｜>"},
    {&ControlIds::eos, "<｜end▁of▁sentence｜>"},
    {&ControlIds::system, "<｜System｜>"},
    {&ControlIds::user, "<｜User｜>"},
    {&ControlIds::assistant, "<｜Assistant｜>"},
    {&ControlIds::think_begin, "<think>"},
    {&ControlIds::think_end, "</think>"},
    {&ControlIds::dsml, "｜DSML｜"},
    {&ControlIds::latest_reminder, "<｜latest_reminder｜>"},
};

}  // namespace

Result<ControlIds> ControlIds::Find(const Tokenizer& tokenizer) {
  ControlIds ids;
  std::string missing;
  for (const Name& name : kNames) {
    if (const auto id = tokenizer.FindToken(name.text)) {
      ids.*name.id = *id;
    } else {
      missing += fmt::format("{}\"{}\"", missing.empty() ? "" : ", ", name.text);
    }
  }
  if (missing.empty()) return ids;
  return Error(
      ErrorCode::kMismatch,
      fmt::format("the tokenizer has no control token {}, which the DeepSeek-V4.1 chat encoding needs; "
                  "use the tokenizer.json of a V4.1 checkpoint",
                  missing));
}

}  // namespace millrace::text
