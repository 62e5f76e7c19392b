#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/seconds.h"
#include "loadgen/chat_client.h"
#include "loadgen/samples.h"

namespace millrace::loadgen {

struct FailureCount {
  int64_t count = 0;
  std::string example;  // what the first said
};

// The figures of many requests, all added one by one. Times are seconds.
struct Summary {
  int64_t requests = 0;
  int64_t succeeded = 0;
  int64_t left = 0;                              // disconnected on purpose: neither succeeded nor failed
  std::map<std::string, FailureCount> failures;  // by name; each request that failed once
  std::map<std::string, int64_t> refusals;       // by name; tries that were repeated
  // Of requests that succeeded.
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of these, as far as told
  bool tells_cached_tokens = false;
  int64_t completion_tokens = 0;
  int64_t without_usage = 0;            // answers whose events were counted in place of tokens
  Samples ttft_s;                       // from the first try's first byte sent to the first text
  Samples gap_s;                        // between two events with text; all of them
  Samples tpot_s;                       // of each answer: first to last text over its tokens but the first
  Samples e2e_s;                        // of each answer, to its end
  std::optional<double> slowest_tok_s;  // the least decode rate of an answer

  void Add(const RequestRecord& record);
  int64_t failed() const { return requests - succeeded - left; }
};

}  // namespace millrace::loadgen
