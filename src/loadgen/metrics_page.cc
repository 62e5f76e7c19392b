#include "loadgen/metrics_page.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace millrace::loadgen {
namespace {

bool IsNamePart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
}

// A reader of one line; each Take* is false when the line is not what it must be.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) {}

  bool TakeName(std::string& name) {
    size_t n = 0;
    while (n < rest_.size() && IsNamePart(rest_[n])) ++n;
    name = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return n > 0;
  }

  bool TakeLabels(std::map<std::string, std::string>& labels) {
    if (!Take('{')) return true;
    while (!Take('}')) {
      std::string name, value;
      if (!TakeName(name) || !Take('=') || !TakeQuoted(value)) return false;
      labels[std::move(name)] = std::move(value);
      if (!Take(',') && !rest_.starts_with('}')) return false;
    }
    return true;
  }

  bool TakeValue(double& value) {
    while (Take(' ') || Take('\t')) {
    }
    const std::string word(rest_.substr(0, rest_.find_first_of(" \t")));
    char* end = nullptr;
    value = std::strtod(word.c_str(), &end);
    return !word.empty() && end == word.c_str() + word.size();
  }

 private:
  bool Take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool TakeQuoted(std::string& value) {
    if (!Take('"')) return false;
    while (!rest_.empty() && !Take('"')) {
      const bool escaped = Take('\\');
      if (rest_.empty()) return false;
      value += escaped && rest_.front() == 'n' ? '\n' : rest_.front();
      rest_.remove_prefix(1);
      if (rest_.empty()) return false;
    }
    return true;
  }

  std::string_view rest_;
};

std::optional<double> SumOfFirst(const std::vector<Metric>& metrics,
                                 std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    std::optional<double> sum;
    for (const Metric& metric : metrics)
      if (metric.name == name) sum = sum.value_or(0) + metric.value;
    if (sum) return sum;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Metric> ParseMetricsPage(std::string_view page) {
  std::vector<Metric> metrics;
  while (!page.empty()) {
    const size_t end = page.find('\n');
    std::string_view text = page.substr(0, end);
    page.remove_prefix(end == std::string_view::npos ? page.size() : end + 1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty() || text.front() == '#') continue;
    Line line(text);
    Metric metric;
    if (line.TakeName(metric.name) && line.TakeLabels(metric.labels) && line.TakeValue(metric.value))
      metrics.push_back(std::move(metric));
  }
  return metrics;
}

ServerLoad ReadServerLoad(const std::vector<Metric>& metrics) {
  ServerLoad load;
  load.running = SumOfFirst(metrics, {"vllm:num_requests_running", "sglang:num_running_reqs"});
  load.waiting = SumOfFirst(metrics, {"vllm:num_requests_waiting", "sglang:num_queue_reqs"});
  load.generated = SumOfFirst(metrics, {"vllm:generation_tokens_total", "sglang:generation_tokens_total"});
  for (const Metric& metric : metrics) {
    const auto account = metric.labels.find("account");
    if (metric.name == "millrace_memory_live_bytes" && account != metric.labels.end())
      load.live_bytes[account->second] += metric.value;
  }
  return load;
}

}  // namespace millrace::loadgen
