#include "loadgen/load_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "loadgen/run_loop.h"

namespace millrace::loadgen {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

constexpr size_t kMaxPageBytes = size_t{16} << 20;
constexpr int64_t kShortWords = 30;
constexpr int64_t kLongWords = 300;

struct Page {
  HttpReply reply;
  std::string body;
};

asio::awaitable<void> Fetch(const HttpClient& http, const std::string& path, Page& page) {
  const HttpClient::BodySink sink = [&page](const HttpReply&, std::string_view part) {
    page.body.append(part);
    return page.body.size() <= kMaxPageBytes;
  };
  HttpAsk ask;  // a temporary inside co_await would be copied wrongly by GCC 12
  ask.path = path;
  page.reply = co_await http.Ask(ask, sink);
}

Error Interrupted() {
  return Error(ErrorCode::kCancelled, "interrupted");
}

Result<Page> GetReply(const HttpClient& http, const std::string& path) {
  Page page;
  if (RunLoop([&] { return Fetch(http, path, page); }) == LoopEnd::kInterrupted) return Interrupted();
  if (page.reply.failure) {
    return Error(ErrorCode::kIo, fmt::format("{}{}: {}: {}", http.options().url.ToString(), path,
                                             page.reply.failure->Name(), page.reply.failure->detail));
  }
  return page;
}

Result<std::string> FirstModel(const HttpClient& http) {
  MILLRACE_ASSIGN_OR_RETURN(const Page page, GetReply(http, "/v1/models"));
  const std::string where = http.options().url.ToString() + "/v1/models";
  if (page.reply.status == 401 || page.reply.status == 403) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} answered {}: give the server's key with --api-key-file or --api-key", where,
                             page.reply.status));
  }
  boost::system::error_code failure;
  const json::value parsed = json::parse(page.body, failure);
  const json::value* const first = failure ? nullptr : parsed.find_pointer("/data/0/id", failure);
  if (page.reply.status != 200 || first == nullptr || !first->is_string()) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("{} answered {} without a model: {}; give one with --model", where,
                             page.reply.status, ErrorText(page.body)));
  }
  return std::string(first->get_string());
}

asio::awaitable<void> Probe(const ChatClient& client, std::string prompt, RequestRecord& record) {
  ChatRequest request;
  request.messages = {Message("user", prompt)};
  request.max_tokens = 1;
  record = co_await client.Ask(request);
}

// Prompt tokens of a nonce and so many words.
Result<double> PromptTokens(const ChatClient& client, TextMaker& text, int64_t n_words) {
  RequestRecord record;
  const std::string prompt = text.Nonce() + text.Words(n_words);
  if (RunLoop([&] { return Probe(client, prompt, record); }) == LoopEnd::kInterrupted) return Interrupted();
  const std::string where = client.http().options().url.ToString();
  if (record.failure) {
    return Error(ErrorCode::kIo, fmt::format("{} does not answer a prompt of {} words: {}: {}", where,
                                             n_words, record.failure->Name(), record.failure->detail));
  }
  if (!record.usage) {
    return Error(
        ErrorCode::kMismatch,
        fmt::format("{} streams no usage, so that lengths in tokens are unknown; say how long a word "
                    "is with --tokens-per-word (1.3 is common)",
                    where));
  }
  return static_cast<double>(record.usage->prompt_tokens);
}

Result<TokenRate> LearnRate(const ChatClient& client, TextMaker& text) {
  MILLRACE_ASSIGN_OR_RETURN(const double few, PromptTokens(client, text, kShortWords));
  MILLRACE_ASSIGN_OR_RETURN(const double many, PromptTokens(client, text, kLongWords));
  TokenRate rate;
  rate.tokens_per_word = (many - few) / static_cast<double>(kLongWords - kShortWords);
  if (rate.tokens_per_word <= 0) {
    return Error(
        ErrorCode::kMismatch,
        fmt::format("the server counts {} tokens for {} words and {} for {}: its usage is no count of "
                    "tokens; give --tokens-per-word",
                    few, kShortWords, many, kLongWords));
  }
  rate.overhead_tokens = std::max(0.0, few - rate.tokens_per_word * static_cast<double>(kShortWords));
  return rate;
}

}  // namespace

Result<LoadSession> LoadSession::Open(LoadSessionOptions options) {
  HttpClient http(std::move(options.http));
  if (options.chat.model.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(options.chat.model, FirstModel(http));
  }
  LoadSession session{ChatClient(std::move(http), std::move(options.chat)), TextMaker(options.seed)};
  TokenRate rate;
  if (options.tokens_per_word) {
    rate.tokens_per_word = *options.tokens_per_word;
  } else {
    MILLRACE_ASSIGN_OR_RETURN(rate, LearnRate(session.client, session.text));
  }
  session.text.set_rate(rate);
  return session;
}

Result<std::optional<std::string>> GetPage(const HttpClient& http, const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(Page page, GetReply(http, path));
  if (page.reply.status != 200) return std::optional<std::string>();
  return std::optional(std::move(page.body));
}

std::optional<ServerLoad> AskServerLoad(const HttpClient& http) {
  const Result<std::optional<std::string>> page = GetPage(http, "/metrics");
  if (!page.ok() || !*page) return std::nullopt;
  return ReadServerLoad(ParseMetricsPage(**page));
}

}  // namespace millrace::loadgen
