#include "app/built_in_flags.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdint>
#include <string_view>

namespace millrace::app {
namespace {

enum class Takes : uint8_t { kNothing, kAnyValue, kOneOf };

struct BuiltInFlag {
  const char* names;
  Takes takes;
  std::vector<std::string> accepted;  // with kOneOf
  const char* note;
};

const std::vector<BuiltInFlag>& BuiltInFlags() {
  static const std::vector<BuiltInFlag> flags = {
      {"--enable-auto-tool-choice", Takes::kNothing, {}, "tool calls are read whenever a request has tools"},
      {"--tool-call-parser", Takes::kAnyValue, {}, "the model's own tool format is built in"},
      {"--reasoning-parser", Takes::kAnyValue, {}, "reasoning is always told from the answer"},
      {"--tokenizer-mode", Takes::kAnyValue, {}, "the checkpoint's tokenizer is the only one"},
      {"--jinja", Takes::kNothing, {}, "the chat format is built in"},
      {"--trust-remote-code", Takes::kNothing, {}, "no code of a checkpoint is ever run"},
      {"--enable-chunked-prefill", Takes::kNothing, {}, "long prompts are always cut into chunks"},
      {"--enable-metrics,--metrics", Takes::kNothing, {}, "GET /metrics is always there"},
      {"--enable-cache-report,--enable-prompt-tokens-details",
       Takes::kNothing,
       {},
       "usage always tells cached tokens"},
      {"--enforce-eager", Takes::kNothing, {}, "nothing is compiled while serving"},
      {"--skip-server-warmup", Takes::kNothing, {}, "there is no warm-up"},
      {"--disable-log-requests,--no-enable-log-requests",
       Takes::kNothing,
       {},
       "what requests say is never logged"},
      {"--dtype", Takes::kOneOf, {"auto"}, "the checkpoint says"},
      {"--load-format", Takes::kOneOf, {"auto", "safetensors"}, "the checkpoint says"},
      {"--device", Takes::kOneOf, {"auto", "cpu"}, "it runs on the processor"},
      {"--tensor-parallel-size,--tp,--tp-size", Takes::kOneOf, {"1"}, "it runs in one process"},
      {"--pipeline-parallel-size,--pp,--pp-size", Takes::kOneOf, {"1"}, "it runs in one process"},
      {"--data-parallel-size,--dp,--dp-size", Takes::kOneOf, {"1"}, "it runs in one process"},
  };
  return flags;
}

std::string FirstName(std::string_view names) {
  return std::string(names.substr(0, names.find(',')));
}

}  // namespace

void AddBuiltInFlags(CLI::App& command, std::vector<std::string>& notes) {
  for (const BuiltInFlag& flag : BuiltInFlags()) {
    if (command.get_option_no_throw(FirstName(flag.names)) != nullptr) continue;
    const std::string note = fmt::format("{} changes nothing: {}", FirstName(flag.names), flag.note);
    const auto add_note = [&notes, note](const std::string&) { notes.push_back(note); };
    CLI::Option* option = nullptr;
    if (flag.takes == Takes::kNothing) {
      option = command.add_flag_callback(
          flag.names, [add_note] { add_note(""); }, flag.note);
    } else {
      option = command.add_option_function<std::string>(flag.names, add_note, flag.note);
    }
    if (flag.takes == Takes::kOneOf) option->check(CLI::IsMember(flag.accepted));
    option->group(kBuiltInFlags);
  }
}

}  // namespace millrace::app
