#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::loadgen {

struct Metric {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

// The samples of a page in Prometheus' text format; lines that are not understood are left out.
std::vector<Metric> ParseMetricsPage(std::string_view page);

// What servers say of their load.
struct ServerLoad {
  std::optional<double> running;  // requests
  std::optional<double> waiting;
  std::optional<double> generated;           // tokens, since the server began
  std::map<std::string, double> live_bytes;  // millrace's ledger: by account
};

// Under millrace's, vLLM's and SGLang's names, all engines of the page together.
ServerLoad ReadServerLoad(const std::vector<Metric>& metrics);

}  // namespace millrace::loadgen
