#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

// Runs the built binary as a user does: through pipes and on a pseudo-terminal.

namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

const char* const kMini = MILLRACE_SOURCE_DIR "/models/mini";
constexpr auto kPatience = 120s;

[[noreturn]] void Exec(std::vector<std::string> args) {
  args.insert(args.begin(), MILLRACE_BINARY);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

int ExitStatus(pid_t child) {
  const auto deadline = Clock::now() + kPatience;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      ADD_FAILURE() << "the process did not end";
      return -1;
    }
    std::this_thread::sleep_for(5ms);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Finished {
  int status = -1;
  std::string out;
  std::string err;
};

std::string FileText(std::FILE* file) {
  std::rewind(file);
  std::string text;
  std::array<char, 4096> part;
  while (const size_t n = std::fread(part.data(), 1, part.size(), file)) text.append(part.data(), n);
  return text;
}

// `input` is all of its stdin.
Finished RunMillrace(const std::vector<std::string>& args, const std::string& input = "") {
  std::FILE* in = std::tmpfile();
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  std::fwrite(input.data(), 1, input.size(), in);
  std::rewind(in);
  const pid_t child = fork();
  if (child == 0) {
    dup2(fileno(in), STDIN_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    Exec(args);
  }
  Finished finished;
  finished.status = ExitStatus(child);
  finished.out = FileText(out);
  finished.err = FileText(err);
  for (std::FILE* file : {in, out, err}) std::fclose(file);
  return finished;
}

// A child on a terminal of its own.
class OnTerminal {
 public:
  explicit OnTerminal(const std::vector<std::string>& args) {
    child_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (child_ == 0) Exec(args);
  }
  ~OnTerminal() { close(terminal_); }

  void Type(const std::string& keys) {
    ASSERT_EQ(write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  // Reads on until `text` has been shown since the last call; what was shown up to its end.
  std::string ReadTo(const std::string& text) {
    const auto deadline = Clock::now() + kPatience;
    size_t at = std::string::npos;
    while ((at = unread_.find(text)) == std::string::npos && Clock::now() < deadline && ReadSome()) {
    }
    if (at == std::string::npos) {
      ADD_FAILURE() << "'" << text << "' was never shown, but: " << unread_;
      return {};
    }
    std::string shown = unread_.substr(0, at + text.size());
    unread_.erase(0, at + text.size());
    return shown;
  }

  int Wait() {
    while (ReadSome()) {
    }
    return ExitStatus(child_);
  }

 private:
  bool ReadSome() {
    pollfd watched = {.fd = terminal_, .events = POLLIN, .revents = 0};
    if (poll(&watched, 1, 100) == 0) return true;
    std::array<char, 4096> part;
    const ssize_t n = read(terminal_, part.data(), part.size());
    if (n <= 0) return false;  // the child is gone
    unread_.append(part.data(), static_cast<size_t>(n));
    return true;
  }

  pid_t child_ = -1;
  int terminal_ = -1;
  std::string unread_;
};

TEST(Generate, StreamsTextToStdoutAndSumsUpOnStderr) {
  const Finished run = RunMillrace({"generate", kMini, "--temperature", "0", "--prompt",
                                    "<｜User｜>What is the capital of France?<｜Assistant｜></think>"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "The capital of France is Paris.\n");
  EXPECT_THAT(run.err, MatchesRegex("prompt 14 tokens, generated 13 tokens in [0-9.]+ s \\([0-9.]+ tok/s\\), "
                                    "ttft [0-9.]+ s, stop, seed [0-9]+\n"));
}

TEST(Generate, TheSameSeedGivesTheSameText) {
  const std::vector<std::string> args = {
      "generate",      kMini,
      "--prompt",      "<｜User｜>Tell me a story about a dog.<｜Assistant｜></think>",
      "--seed",        "7",
      "--top-p",       "0.95",
      "--min-p",       "0.01",
      "--top-k",       "200",
      "--max-tokens",  "40",
      "--temperature", "1.5"};
  const Finished first = RunMillrace(args);
  EXPECT_EQ(first.status, 0);
  EXPECT_GT(first.out.size(), 20u);
  EXPECT_EQ(RunMillrace(args).out, first.out);
  std::vector<std::string> other = args;
  other[5] = "8";
  EXPECT_NE(RunMillrace(other).out, first.out);
  EXPECT_THAT(first.err, HasSubstr("seed 7"));
}

TEST(Generate, LateLayersForAllTokensGiveTheSameText) {
  std::string prompt = "<｜User｜>";
  for (int i = 0; i < 100; ++i)
    prompt += "Tell me a story about a dog. ";  // past what the answer reaches back to
  prompt += "<｜Assistant｜></think>";
  const auto run = [&](const std::string& late_layers) {
    return RunMillrace({"generate", kMini, "--prompt", prompt, "--seed", "7", "--max-tokens", "40",
                        "--late-layers", late_layers});
  };
  const Finished needed = run("needed");
  EXPECT_EQ(needed.status, 0);
  EXPECT_GT(needed.out.size(), 20u);
  EXPECT_EQ(run("all").out, needed.out);
  const Finished wrong = run("half");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--late-layers"));
  EXPECT_THAT(wrong.err, HasSubstr("half"));
}

// At a temperature at which even small changes of the distribution show within some hundred draws. An answer
// may end before they do: four are compared.
TEST(Generate, NumericsReachTheForwardPassAndReferenceIsTheDefault) {
  const auto run = [&](int seed, const std::vector<std::string>& numerics) {
    std::vector<std::string> args = {
        "generate",      kMini,
        "--temperature", "2",
        "--seed",        std::to_string(seed),
        "--max-tokens",  "400",
        "--prompt",      "<｜User｜>Tell me a story about a dog.<｜Assistant｜></think>"};
    args.insert(args.end(), numerics.begin(), numerics.end());
    return RunMillrace(args);
  };
  bool differs = false;
  for (const int seed : {1, 3, 4, 5}) {
    const Finished reference = run(seed, {"--numerics", "reference"});
    EXPECT_EQ(reference.status, 0);
    EXPECT_EQ(run(seed, {}).out, reference.out);
    const Finished fast = run(seed, {"--numerics", "fast"});
    EXPECT_EQ(fast.status, 0);
    differs = differs || fast.out != reference.out;
  }
  EXPECT_TRUE(differs);
  const Finished wrong = run(7, {"--numerics", "slow"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--numerics: slow"));
}

TEST(Generate, EndsAtAStopStringAndAtTheLimit) {
  const std::string prompt = "<｜User｜>What is 2+2?<｜Assistant｜></think>";
  const Finished stopped = RunMillrace(
      {"generate", kMini, "--temperature", "0", "--stop", "nothing", "--stop", "=4", "--prompt", prompt});
  EXPECT_EQ(stopped.out, "2+2\n");
  EXPECT_THAT(stopped.err, HasSubstr(", stop, "));
  const Finished limited =
      RunMillrace({"generate", kMini, "--temperature", "0", "--max-tokens", "2", "--prompt", prompt});
  EXPECT_EQ(limited.status, 0);
  EXPECT_THAT(limited.err, HasSubstr("generated 2 tokens"));
  EXPECT_THAT(limited.err, HasSubstr(", length, "));
}

TEST(Generate, FailuresNameTheCauseAndExitWithTheirStatus) {
  EXPECT_EQ(RunMillrace({"generate", kMini}).status, 2);
  EXPECT_EQ(RunMillrace({"generate", kMini, "--prompt", "x", "--prompt-file", "y"}).status, 2);
  EXPECT_EQ(RunMillrace({"generate", kMini, "--prompt", "x", "--no-such-flag"}).status, 2);
  const Finished range = RunMillrace({"generate", kMini, "--prompt", "x", "--top-p", "3"});
  EXPECT_EQ(range.status, 1);
  EXPECT_EQ(range.out, "");
  EXPECT_EQ(range.err, "millrace: top_p is 3; it must be greater than 0 and at most 1 (1: off)\n");
  const Finished missing = RunMillrace({"generate", "/no/such/checkpoint", "--prompt", "x"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, StartsWith("millrace: /no/such/checkpoint"));
  const Finished length =
      RunMillrace({"generate", kMini, "--prompt", "one two three four", "--max-model-len", "3"});
  EXPECT_EQ(length.status, 1);
  EXPECT_THAT(length.err, HasSubstr("maximum context length is 3 tokens"));
}

TEST(Chat, TakesALineOfAPipeForATurnAndRemembersTheOnesBefore) {
  const Finished run = RunMillrace({"chat", kMini, "--no-thinking", "--temperature", "0"},
                                   "My name is Grace.\nWhat is my name?\r\n\nWhat is 2+2?");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "Nice to meet you, Grace.\nYour name is Grace.\n2+2=4\n");
  EXPECT_EQ(run.err, "");
}

TEST(Chat, InAPipeStdoutHasTheAnswersAlone) {
  const Finished run =
      RunMillrace({"chat", kMini, "--temperature", "0", "--system", "You are a helpful assistant."},
                  "What is 47 + 38?\n");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "47+38=85\n");
  EXPECT_EQ(run.err, "Ones: 7+8=15, write 5, carry 1. Tens: 4+3=7, 7+1=8. So 8 and 5: 85.\n");
}

TEST(Chat, AQuestionThatDoesNotFitEndsAPipe) {
  const Finished run = RunMillrace({"chat", kMini, "--no-thinking", "--max-model-len", "12"},
                                   "What is the capital of France, and of Spain, and of Italy?\nHello!\n");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("maximum context length is 12 tokens"));
}

TEST(Chat, OnATerminalReasoningIsDimmedAndCtrlDLeaves) {
  OnTerminal chat({"chat", kMini, "--temperature", "0"});
  chat.ReadTo("> ");
  chat.Type("What is 47 + 38?\n");
  EXPECT_THAT(chat.ReadTo("\x1b[0m"), HasSubstr("\x1b[2mOnes: 7+8=15"));
  EXPECT_THAT(chat.ReadTo("> "), HasSubstr("47+38=85"));
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST(Chat, CtrlCStopsTheAnswerAndNotTheChat) {
  OnTerminal chat({"chat", kMini, "--temperature", "0", "--no-thinking"});
  chat.ReadTo("> ");
  chat.Type("\x03");  // at the prompt: a fresh one
  chat.ReadTo("> ");
  chat.Type("Count to 9.\n");  // this model does not stop by itself
  chat.ReadTo("20, 21");
  chat.Type("\x03");
  const std::string shown = chat.ReadTo("> ");
  EXPECT_LT(shown.size(), 100000u);
  chat.Type("What is 2+2?\n");
  EXPECT_THAT(chat.ReadTo("> "), Not(HasSubstr("millrace:")));
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

}  // namespace
