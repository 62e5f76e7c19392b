#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/terminal_session.h"
#include "formats/text_file.h"
#include "text/control_ids.h"

namespace millrace::app {
namespace {

constexpr size_t kMaxPromptBytes = size_t{256} << 20;
constexpr int64_t kDefaultMaxTokens = 1024;

struct GenerateFlags {
  TerminalFlags terminal;
  std::string prompt;
  std::string prompt_file;
  bool raw = false;
};

Result<std::vector<TokenId>> EncodePrompt(const text::Tokenizer& tokenizer, const GenerateFlags& flags) {
  std::string prompt = flags.prompt;
  if (!flags.prompt_file.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(prompt, formats::ReadTextFile(flags.prompt_file, kMaxPromptBytes));
  }
  std::vector<TokenId> ids = tokenizer.EncodePrompt(prompt);
  if (flags.raw) return ids;
  MILLRACE_ASSIGN_OR_RETURN(const text::ControlIds control, text::ControlIds::Find(tokenizer));
  if (ids.empty() || ids.front() != control.bos) ids.insert(ids.begin(), control.bos);
  return ids;
}

Status Generate(const GenerateFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<TerminalSession> session,
                            TerminalSession::Open(flags.terminal));
  MILLRACE_ASSIGN_OR_RETURN(std::vector<TokenId> ids, EncodePrompt(session->tokenizer(), flags));
  MILLRACE_ASSIGN_OR_RETURN(const TerminalAnswer answer,
                            session->Answer(std::move(ids), std::nullopt, [](const api::TextDelta& delta) {
                              std::fwrite(delta.content.data(), 1, delta.content.size(), stdout);
                              std::fflush(stdout);
                            }));
  std::fputc('\n', stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Error(ErrorCode::kIo, "cannot write the text to stdout");
  }
  fmt::print(stderr, "{}\n", SummaryLine(answer));
  if (answer.reason == engine::FinishReason::kCancelled) return Error(ErrorCode::kCancelled, "interrupted");
  return {};
}

}  // namespace

void AddGenerateCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<GenerateFlags>();
  flags->terminal.max_tokens = kDefaultMaxTokens;
  CLI::App* command = root.add_subcommand("generate", "Continue a raw prompt and stream the text to stdout");
  AddTerminalFlags(*command, flags->terminal);
  CLI::Option_group* prompt = command->add_option_group("prompt");
  prompt->add_option("--prompt", flags->prompt,
                     "The prompt's text; control tokens are recognised in it, and it begins with the "
                     "begin-of-sequence token");
  prompt->add_option("--prompt-file", flags->prompt_file, "A file that holds the prompt")
      ->check(CLI::ExistingFile);
  prompt->require_option(1);
  command->add_flag("--raw", flags->raw,
                    "Take the prompt exactly: no begin-of-sequence token is put in front");
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportStatus(Generate(*flags)); }; });
}

}  // namespace millrace::app
