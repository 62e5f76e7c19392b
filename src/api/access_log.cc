#include "api/access_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace millrace::api {
namespace {

// What a client sent must neither look like more of the line nor break its encoding.
std::string Printable(std::string_view text) {
  constexpr size_t kMaxBytes = 256;
  std::string out;
  for (const char c : text.substr(0, kMaxBytes)) {
    if (c > ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kMaxBytes) out += "...";
  return out;
}

void AddGeneration(const GenerationFacts& facts, std::vector<LogField>& fields) {
  fields.push_back({"prompt_tokens", facts.prompt_tokens});
  fields.push_back({"cached_tokens", facts.cached_tokens});
  fields.push_back({"generated_tokens", facts.generated_tokens});
  if (facts.choices > 1) fields.push_back({"choices", static_cast<int64_t>(facts.choices)});
  if (facts.first_token_seconds) fields.push_back({"ttft_s", *facts.first_token_seconds});
  if (facts.decode_tokens_per_second) fields.push_back({"decode_tok_s", *facts.decode_tokens_per_second});
  fields.push_back({"finish_reason", std::string_view(facts.finish_reason)});
}

}  // namespace

void AccessLog::Write(const RequestLine& line, const RequestRecord& record, int status,
                      uint64_t body_bytes) const {
  const auto excludes = [&](const std::string& prefix) { return line.path.starts_with(prefix); };
  if (!options_.enabled || std::ranges::any_of(options_.excluded_prefixes, excludes)) return;
  const std::string method = Printable(line.method), path = Printable(line.path);
  const std::string param = Printable(record.error_param);
  const std::chrono::duration<double> duration = std::chrono::steady_clock::now() - line.arrival;
  std::vector<LogField> fields = {{"request_id", std::string_view(line.request_id)},
                                  {"method", std::string_view(method)},
                                  {"path", std::string_view(path)},
                                  {"status", int64_t{status}}};
  if (!record.model.empty()) fields.push_back({"model", std::string_view(record.model)});
  if (record.generation) AddGeneration(*record.generation, fields);
  if (!record.error_code.empty()) fields.push_back({"error", std::string_view(record.error_code)});
  if (!param.empty()) fields.push_back({"param", std::string_view(param)});
  fields.push_back({"bytes", static_cast<int64_t>(body_bytes)});
  fields.push_back({"duration_s", duration.count()});
  LogEvent("request", fields);
}

}  // namespace millrace::api
