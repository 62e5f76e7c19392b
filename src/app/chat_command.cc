#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "app/commands.h"
#include "app/line_reader.h"
#include "app/terminal_session.h"
#include "text/chat_prompt.h"
#include "text/reasoning_effort.h"

namespace millrace::app {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

struct ChatFlags {
  TerminalFlags terminal;
  bool thinking = true;
  int reasoning_effort = text::kHighEffort;
  std::string system;
};

void Print(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

// What the model says must not move the cursor or recolour the terminal.
std::string WithoutControls(std::string_view text) {
  std::string safe;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
    safe += control ? '?' : c;
  }
  return safe;
}

// Shows one answer: on a terminal reasoning comes dimmed before the answer; in a pipe stdout carries answers
// alone and reasoning goes to stderr.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool terminal) : terminal_(terminal) {}

  void Show(const api::TextDelta& delta) {
    if (!delta.reasoning.empty()) {
      if (!std::exchange(reasoning_, true) && terminal_) Print(stdout, kDim);
      Print(terminal_ ? stdout : stderr, Shown(delta.reasoning));
    }
    if (!delta.content.empty()) {
      EndReasoning("\n\n");
      Print(stdout, Shown(delta.content));
    }
  }

  void End() {
    EndReasoning("");
    Print(stdout, "\n");
  }

 private:
  void EndReasoning(std::string_view gap) {
    if (!std::exchange(reasoning_, false)) return;
    if (terminal_) {
      Print(stdout, fmt::format("{}{}", kPlain, gap));
    } else {
      Print(stderr, "\n");
    }
  }
  std::string Shown(const std::string& text) const { return terminal_ ? WithoutControls(text) : text; }

  bool terminal_;
  bool reasoning_ = false;  // the last text shown was reasoning
};

// One conversation at a terminal, or one user turn for each line of a pipe.
class Chat {
 public:
  static Status Run(const ChatFlags& flags) {
    MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<TerminalSession> session,
                              TerminalSession::Open(flags.terminal));
    MILLRACE_ASSIGN_OR_RETURN(const text::ChatEncoder encoder,
                              text::ChatEncoder::Create(session->tokenizer()));
    Chat chat(*session, encoder, flags);
    return chat.Loop();
  }

 private:
  Chat(TerminalSession& session, const text::ChatEncoder& encoder, const ChatFlags& flags)
      : session_(session), encoder_(encoder) {
    request_.options.thinking = flags.thinking;
    request_.options.reasoning_effort = flags.reasoning_effort;
    if (!flags.system.empty()) Add(text::Role::kSystem, flags.system);
  }

  void Add(text::Role role, std::string content, std::string reasoning = {}) {
    request_.messages.push_back(
        {.role = role, .content = std::move(content), .reasoning = std::move(reasoning)});
  }

  Status Loop() {
    const bool prompts = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (prompts) Print(stdout, "Ctrl-C stops an answer, Ctrl-D leaves.\n");
    LineReader lines(STDIN_FILENO, session_.interrupt());
    while (true) {
      if (prompts) Print(stdout, "\n> ");
      Result<std::optional<std::string>> line = lines.Next();
      if (!line.ok() && line.error().code() == ErrorCode::kCancelled) continue;  // Ctrl-C: a fresh line
      if (!line.ok()) return line.error();
      if (!line->has_value()) break;
      if ((*line)->empty()) continue;
      MILLRACE_RETURN_IF_ERROR(Turn(**std::move(line)));
    }
    if (prompts) Print(stdout, "\n");
    return {};
  }

  // One question and its answer. A question that is refused, such as one that no longer fits the context,
  // leaves the conversation as it was: at a terminal the user may ask another, in a pipe it is the end.
  Status Turn(std::string question) {
    Add(text::Role::kUser, std::move(question));
    Result<TerminalAnswer> answer = Answer();
    if (answer.ok()) {
      Add(text::Role::kAssistant, std::move(answer->content), std::move(answer->reasoning));
      return {};
    }
    request_.messages.pop_back();
    if (!isatty(STDIN_FILENO)) return answer.error();
    fmt::print(stderr, "millrace: {}\n", answer.error().message());
    return {};
  }

  Result<TerminalAnswer> Answer() {
    MILLRACE_ASSIGN_OR_RETURN(const text::ChatPrompt prompt, encoder_.Render(request_));
    AnswerPrinter printer(isatty(STDOUT_FILENO));
    api::ParseOptions parse;
    parse.ids = encoder_.control_ids();
    parse.starts_in_reasoning = prompt.starts_in_reasoning;
    Result<TerminalAnswer> answer = session_.Answer(
        encoder_.Encode(prompt), std::move(parse), [&](const api::TextDelta& delta) { printer.Show(delta); });
    printer.End();
    return answer;
  }

  TerminalSession& session_;
  const text::ChatEncoder& encoder_;
  text::ChatRequest request_;
};

}  // namespace

void AddChatCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = root.add_subcommand("chat", "Talk to the model on the terminal, a line for each turn");
  AddTerminalFlags(*command, flags->terminal);
  command->add_flag("--thinking,!--no-thinking", flags->thinking, "Let the model reason before it answers");
  command->add_option("--reasoning-effort", flags->reasoning_effort, "How much it reasons")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--system", flags->system, "System text in front of the conversation");
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportStatus(Chat::Run(*flags)); }; });
}

}  // namespace millrace::app
