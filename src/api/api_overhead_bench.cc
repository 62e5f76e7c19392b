// What the server adds to a model: processor time of a token, and how long it takes from the model to a
// client, while 64 chats stream from a scripted model at a fixed rate. Engine, parser, format, HTTP and
// sockets are the real ones; the client is one thread of this process, whose time is taken off. Writing the
// one-hot logits and sampling them count as the server's. The run fails unless each stream brings every token
// in an event of its own.
//
// millrace_api_overhead_bench [--streams N] [--rate TOKENS_PER_SECOND] [--tokens N]

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/scripted_server.h"
#include "base/log.h"

namespace millrace::api {
namespace {

using Clock = std::chrono::steady_clock;

// 64 streams of 150 tokens a second must leave one core something.
constexpr double kFloorTokensPerSecond = 64 * 150;

struct Flags {
  int streams = 64;
  int rate = 10'000;
  int tokens = 1'000;
};

double ProcessorSeconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// When the model gave token n of stream s: written by the engine's thread before the token can leave it.
using TokenTimes = std::vector<std::vector<Clock::time_point>>;

// One chat over a socket: the times at which its tokens' events arrived.
class Stream {
 public:
  ~Stream() {
    if (socket_ >= 0) close(socket_);
  }

  bool Open(uint16_t port, const std::string& body) {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return false;
    const std::string request =
        fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body);
    return send(socket_, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size());
  }

  // After poll has found input.
  void Read() {
    char bytes[64 << 10];
    const ssize_t n = recv(socket_, bytes, sizeof bytes, 0);
    const Clock::time_point now = Clock::now();
    if (n <= 0) {
      done_ = true;
      return;
    }
    input_.append(bytes, static_cast<size_t>(n));
    // Of a content that is not empty: the first chunk's, beside the role, is.
    constexpr std::string_view kToken = R"("delta":{"content":")";
    constexpr std::string_view kEnd = "data: [DONE]";
    size_t seen = 0;
    for (size_t at = 0; (at = input_.find(kToken, at)) != std::string::npos; seen = at += kToken.size())
      arrivals_.push_back(now);
    if (input_.find(kEnd) != std::string::npos) done_ = true;
    const size_t overlap = std::min(input_.size() - seen, kToken.size() - 1);
    input_.erase(0, input_.size() - overlap);
  }

  int descriptor() const { return socket_; }
  bool done() const { return done_; }
  const std::vector<Clock::time_point>& arrivals() const { return arrivals_; }

 private:
  int socket_ = -1;
  std::string input_;
  bool done_ = false;
  std::vector<Clock::time_point> arrivals_;
};

// Reads all streams to their ends; gives up after ten silent seconds.
bool ReadAll(std::vector<std::unique_ptr<Stream>>& streams) {
  while (true) {
    std::vector<pollfd> polls;
    std::vector<Stream*> open;
    for (const auto& stream : streams) {
      if (stream->done()) continue;
      polls.push_back({stream->descriptor(), POLLIN, 0});
      open.push_back(stream.get());
    }
    if (open.empty()) return true;
    if (poll(polls.data(), polls.size(), 10'000) <= 0) return false;
    for (size_t i = 0; i < open.size(); ++i) {
      if (polls[i].revents != 0) open[i]->Read();
    }
  }
}

// Each stream's prompt is told by its length: one more word a stream.
constexpr std::string_view kWord = " small";

std::string Body(int stream, int tokens) {
  std::string words;
  for (int i = 0; i <= stream; ++i) words += kWord;
  return fmt::format(
      R"({{"messages":[{{"role":"user","content":"{}"}}],"reasoning_effort":"none","stream":true,)"
      R"("temperature":0,"ignore_eos":true,"max_tokens":{}}})",
      words, tokens);
}

// Words of visible ASCII, one token each.
std::vector<TokenId> Script(const text::Tokenizer& tokenizer) {
  return tokenizer.EncodeText(" the bridge and the small dog in the green story");
}

Result<std::unique_ptr<ScriptedServer>> StartServer(const Flags& flags) {
  ScriptedServerOptions options;
  options.tokenizer = MILLRACE_SOURCE_DIR "/models/mini";
  options.model.max_model_len = flags.tokens + 1'000;
  options.model.max_batch_tokens = 4096;
  options.model.record_steps = false;
  options.model.step_period = std::chrono::microseconds(int64_t{1'000'000} * flags.streams / flags.rate);
  options.engine.max_num_seqs = flags.streams;
  options.service.access_log.enabled = false;
  return ScriptedServer::Start(std::move(options));
}

// Makes the model note when it gives which token of which stream.
void NoteTokenTimes(ScriptedServer& server, TokenTimes& times) {
  const TokenId first = server.tokenizer().EncodePrompt("<｜User｜>").back();
  const TokenId last = server.tokenizer().EncodePrompt("<｜Assistant｜>").back();
  const size_t letters = server.tokenizer().EncodeText(kWord).size();
  server.model().ComputeLogits([=, &times, script = Script(server.tokenizer())](
                                   std::span<const TokenId> prefix, std::span<float> logits) {
    const auto words = std::ranges::find(prefix, last) - std::ranges::find(prefix, first) - 1;
    std::vector<Clock::time_point>& stream = times.at(static_cast<size_t>(words) / letters - 1);
    const TokenId next = script[stream.size() % script.size()];
    std::ranges::fill(logits, -1e4f);
    logits[static_cast<size_t>(next)] = 0;
    stream.push_back(Clock::now());
  });
}

double Percentile(std::vector<double>& sorted, double share) {
  return sorted.at(static_cast<size_t>(share * static_cast<double>(sorted.size() - 1)));
}

int Run(const Flags& flags) {
  auto server = StartServer(flags);
  if (!server.ok()) {
    fmt::print(stderr, "{}\n", server.error().message());
    return 1;
  }
  TokenTimes times(static_cast<size_t>(flags.streams));
  for (auto& stream : times) stream.reserve(static_cast<size_t>(flags.tokens));
  NoteTokenTimes(**server, times);

  std::vector<std::unique_ptr<Stream>> streams;
  const double process_before = ProcessorSeconds(CLOCK_PROCESS_CPUTIME_ID);
  const double client_before = ProcessorSeconds(CLOCK_THREAD_CPUTIME_ID);
  for (int s = 0; s < flags.streams; ++s) {
    streams.push_back(std::make_unique<Stream>());
    if (!streams.back()->Open((*server)->http().port(), Body(s, flags.tokens))) {
      fmt::print(stderr, "stream {} of {} cannot connect\n", s, flags.streams);
      return 1;
    }
  }
  const bool complete = ReadAll(streams);
  const double server_seconds = (ProcessorSeconds(CLOCK_PROCESS_CPUTIME_ID) - process_before) -
                                (ProcessorSeconds(CLOCK_THREAD_CPUTIME_ID) - client_before);

  std::vector<double> delays_ms;
  Clock::time_point begin = Clock::time_point::max(), end{};
  for (size_t s = 0; s < streams.size(); ++s) {
    const auto& arrivals = streams[s]->arrivals();
    if (!complete || arrivals.size() != static_cast<size_t>(flags.tokens) ||
        times[s].size() != arrivals.size()) {
      fmt::print(stderr, "stream {}: {} events and {} tokens of {}\n", s, arrivals.size(), times[s].size(),
                 flags.tokens);
      return 1;
    }
    begin = std::min(begin, times[s].front());
    end = std::max(end, times[s].back());
    for (size_t t = 0; t < arrivals.size(); ++t)
      delays_ms.push_back(std::chrono::duration<double, std::milli>(arrivals[t] - times[s][t]).count());
  }
  std::ranges::sort(delays_ms);
  const double tokens = static_cast<double>(delays_ms.size());
  const double wall = std::chrono::duration<double>(end - begin).count();
  const double us_per_token = server_seconds / tokens * 1e6;
  fmt::print("streams                         {}\n", flags.streams);
  fmt::print("tokens                          {} in {:.2f} s: {:.0f}/s of {} asked for\n", delays_ms.size(),
             wall, tokens / wall, flags.rate);
  fmt::print("server's processor time         {:.1f} us a token\n", us_per_token);
  fmt::print("one core would carry            {:.0f} tokens/s, {:.1f} times the floor of {:.0f}\n",
             1e6 / us_per_token, 1e6 / us_per_token / kFloorTokensPerSecond, kFloorTokensPerSecond);
  fmt::print("added delay, model to client    {:.2f} ms median, {:.2f} ms p99, {:.2f} ms worst\n",
             Percentile(delays_ms, 0.5), Percentile(delays_ms, 0.99), delays_ms.back());
  return 0;
}

}  // namespace
}  // namespace millrace::api

int main(int argc, char** argv) {
  millrace::api::Flags flags;
  CLI::App app("Processor time and delay that the server adds to a token", "millrace_api_overhead_bench");
  app.add_option("--streams", flags.streams, "Chats at once")->check(CLI::Range(1, 64));
  app.add_option("--rate", flags.rate, "Tokens a second, all chats together")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--tokens", flags.tokens, "Tokens of a chat")->check(CLI::Range(1, 100'000));
  CLI11_PARSE(app, argc, argv);
  return millrace::api::Run(flags);
}
