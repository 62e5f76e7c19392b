#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/chunk_controller.h"
#include "engine/schedule.h"
#include "model/forward.h"

namespace millrace::app {

struct FairnessOptions {
  int streams = 4;                      // that decode all the time; >= 1
  int prompts = 8;                      // that arrive together, cold; >= 1
  int64_t prompt_tokens = 32768;        // of each
  int64_t huge_prompt_tokens = 262144;  // that a short prompt comes behind; 0: leave that out
  int64_t short_prompt_tokens = 200;
  int64_t chunk_tokens = 512;  // the most of one step
  engine::PaceOptions pace = {};
  double measured_s = 2;  // of undisturbed decoding, before and after; at least
  // After so long the prompts are cut off and what was read until then is measured; 0: until all are read. A
  // prompt's later tokens take longer, and an order that reads one prompt after the other meets them sooner.
  double longest_reading_s = 0;
  int threads = 0;  // 0: one a processor
  // Seconds are those of the processors that the process was given, for machines that others use: what the
  // clock of a machine of its own would show, but for what the engine itself saw of the clock.
  bool by_processor_time = false;
  model::Numerics numerics = model::Numerics::kReference;
};

// What streams and prompts got of one another under one schedule.
struct FairnessCase {
  std::string name;                     // "fair", "fcfs", "fcfs, not paced"
  double solo_tokens_per_s = 0;         // of one stream alone; this and the next: mean of before and after
  double undisturbed_tokens_per_s = 0;  // of the slowest stream while all decode and nothing is read
  double slowest_tokens_per_s = 0;      // of the slowest stream while the prompts are read
  double longest_gap_s = 0;             // between two tokens of a stream, then
  double reading_s = 0;                 // until the last prompt's first token, or until they were cut off
  double prompt_tokens = 0;             // of all prompts together, read until then
  double first_token_s = 0;             // until the first prompt's first token; 0: cut off before
  double stream_tokens_per_s = 0;       // of all streams together, then

  double share() const { return slowest_tokens_per_s / solo_tokens_per_s; }
  double prompt_tokens_per_s() const { return prompt_tokens / reading_s; }
};

// A short prompt that arrived while a huge one was being read and the streams decoded.
struct ShortBehindHuge {
  int64_t huge_tokens = 0;
  double first_token_s = 0;
};

// Runs each schedule through an engine of its own over the checkpoint: fair and fcfs as paced by the
// options, and fcfs without pace, which is what the others are measured by. Then, fair, the short prompt
// behind the huge one and behind one of a quarter of it. Reports as results come. Prompts are random tokens.
// kInvalidArgument for options that do not fit the checkpoint.
Status RunFairness(const std::filesystem::path& checkpoint, const FairnessOptions& options,
                   FunctionRef<void(const FairnessCase&)> on_case,
                   FunctionRef<void(const ShortBehindHuge&)> on_short);

}  // namespace millrace::app
