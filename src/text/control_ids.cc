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
    {&ControlIds::user, "<｜User｜>"},
    {&ControlIds::assistant, "<｜Assistant｜>"},
    {&ControlIds::think_begin, "<think>"},
    {&ControlIds::think_end, "</think>"},
    {&ControlIds::dsml, "｜DSML｜"},
    {&ControlIds::latest_reminder, "<｜latest_reminder｜>"},
};
constexpr std::string_view kSystem = "<｜System｜>";
constexpr std::string_view kImage = "<｜deepseek_image｜>";
constexpr std::array<std::string_view, kTaskCount> kTasks = {"<｜action｜>", "<｜query｜>", "<｜authority｜>",
                                                             "<｜domain｜>", "<｜title｜>", "<｜read_url｜>"};

}  // namespace

Result<ControlIds> ControlIds::Find(const Tokenizer& tokenizer, ChatModel model) {
  ControlIds ids;
  std::string missing;
  const auto miss = [&](std::string_view name) {
    missing += fmt::format("{}\"{}\"", missing.empty() ? "" : ", ", name);
  };
  for (const Name& name : kNames) {
    if (const auto id = tokenizer.FindToken(name.text)) {
      ids.*name.id = *id;
    } else {
      miss(name.text);
    }
  }
  ids.system = tokenizer.FindToken(kSystem);
  if (!ids.system && model == ChatModel::kV41) miss(kSystem);
  ids.image = tokenizer.FindToken(kImage);
  for (size_t i = 0; i < kTaskCount; ++i) ids.tasks[i] = tokenizer.FindToken(kTasks[i]);
  if (missing.empty()) return ids;
  const std::string_view version = model == ChatModel::kV41 ? "V4.1" : "V4";
  return Error(
      ErrorCode::kMismatch,
      fmt::format("the tokenizer has no control token {}, which the DeepSeek-{} chat encoding needs; "
                  "use the tokenizer.json of a {} checkpoint",
                  missing, version, version));
}

}  // namespace millrace::text
