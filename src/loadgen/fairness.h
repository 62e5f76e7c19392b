#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loadgen/load_session.h"
#include "loadgen/samples.h"
#include "loadgen/summary.h"

namespace millrace::loadgen {

// What decoding streams keep while long prompts are read.
struct FairnessOptions {
  int decode_streams = 4;
  int64_t decode_input_tokens = 64;
  int64_t decode_output_tokens = 4096;  // of one answer; a stream that ends asks again
  int64_t solo_tokens = 64;  // timed at least, alone and again by each stream before the prompts arrive
  double solo_s = 1;         // and so long at least
  int long_prompts = 8;
  int64_t long_input_tokens = 32768;
  int64_t short_input_tokens = 200;
  int64_t output_tokens = 16;     // of the long prompts and the short one
  double decode_temperature = 1;  // greedy answers of small models run into loops, which servers end
};

// The texts of one stream between two instants.
struct StreamShare {
  double tokens_per_s = 0;
  double longest_gap_s = 0;  // gaps that the interval cuts count with the part inside
};
// `times` rise; the interval is not empty. An event counts as `tokens_per_event` tokens.
StreamShare ShareBetween(std::span<const TimePoint> times, TimePoint begin, TimePoint end,
                         double tokens_per_event);

struct StreamFairness {
  double before_tok_s = 0;  // beside the other streams, no prompt being read
  double during_tok_s = 0;  // while long prompts were read
  double longest_gap_s = 0;
  int answers = 0;  // begun while the long prompts were read, the running one included
};

struct FairnessResult {
  double solo_tok_s = 0;
  Samples solo_gap_s;
  std::vector<StreamFairness> streams;
  std::string no_rates;            // why no rate of a stream can be told; empty: they can
  double reading_s = 0;            // from the long prompts' sending to the last one's first text
  int64_t long_prompt_tokens = 0;  // read in that time; cached ones not counted
  Samples long_ttft_s;
  std::optional<double> short_ttft_s;
  Summary summary;  // of the long prompts, the short one and answers that streams finished
  std::vector<std::string> notes;
  bool interrupted = false;

  double PrefillTokS() const {
    return reading_s > 0 ? static_cast<double>(long_prompt_tokens) / reading_s : 0;
  }
  // During over solo of the slowest stream; nothing without streams or solo rate, or with `no_rates`.
  std::optional<double> SlowestKept() const;
};

// One stream alone, then all streams, then all long prompts at once with the short one behind them; ends when
// every prompt has been answered. Asks for the server's /metrics before and after: rates count texts, and
// where too few of the generated tokens were text they are refused (`no_rates`). Error when a stream or the
// solo run gives no text.
Result<FairnessResult> RunFairness(LoadSession& session, const FairnessOptions& options);

}  // namespace millrace::loadgen
