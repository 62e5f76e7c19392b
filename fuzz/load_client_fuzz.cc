// What the load generator reads of a server under test: a stream of chat chunks, an error body, a page of
// metrics. Any bytes are understood or named; a stream gives the same answer however it is cut. The first
// byte says where to cut.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "loadgen/chat_answer.h"
#include "loadgen/metrics_page.h"

namespace {

using namespace millrace;

// What became of a stream, in one text.
std::string Outcome(std::string_view bytes, size_t part) {
  loadgen::ChatAnswerReader reader;
  int n_with_text = 0;
  for (size_t at = 0; at < bytes.size(); at += part) n_with_text += reader.Feed(bytes.substr(at, part));
  reader.End();
  std::string outcome = std::to_string(n_with_text) + reader.answer().Transcript();
  if (reader.usage()) outcome += std::to_string(reader.usage()->prompt_tokens);
  if (reader.failure()) {
    MILLRACE_CHECK(!reader.failure()->Name().empty() && reader.failure()->detail.size() < 1000,
                   "a failure that says nothing, or echoes");
    outcome += reader.failure()->Name() + reader.failure()->detail;
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  MILLRACE_CHECK(Outcome(bytes, size) == Outcome(bytes, size_t{1} + data[0] % 16),
                 "an answer depends on where its bytes are cut");
  for (const char c : loadgen::ErrorText(bytes))
    MILLRACE_CHECK(c >= 0x20 && c < 0x7f, "an error text that steers a terminal");
  for (const loadgen::Metric& metric : loadgen::ParseMetricsPage(bytes))
    MILLRACE_CHECK(!metric.name.empty(), "a metric without a name");
  loadgen::ReadServerLoad(loadgen::ParseMetricsPage(bytes));
  return 0;
}
