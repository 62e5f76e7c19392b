#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadgen/load_session.h"
#include "loadgen/summary.h"

namespace millrace::loadgen {

// Facts planted in long prompts and asked for.
struct NeedlesOptions {
  int needles = 5;  // prompts for each depth
  std::vector<double> depths = {0.1, 0.5, 0.9};
  int64_t input_tokens = 3600;
  int64_t output_tokens = 32;
  int max_concurrency = 1;
};

// "The secret code of Willow is 0417." among sentences, with the codes of three other names elsewhere.
struct Needle {
  std::string prompt;
  std::string name;
  std::string code;
};

// A text of about `n_tokens` tokens, a nonce at its begin, the fact at `depth` in [0, 1] of it and the
// question at its end.
Needle MakeNeedle(TextMaker& text, int64_t n_tokens, double depth);

struct NeedleDepth {
  double depth = 0;
  int asked = 0;
  int found = 0;
  std::string first_miss;  // what was answered instead, or the failure
};

struct NeedlesResult {
  std::vector<NeedleDepth> depths;
  Summary summary;
  double duration_s = 0;
  bool interrupted = false;

  int asked() const;
  int found() const;
};

NeedlesResult RunNeedles(LoadSession& session, const NeedlesOptions& options);

}  // namespace millrace::loadgen
