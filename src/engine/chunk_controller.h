#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace millrace::engine {

// How much prompts that are being read may slow those who decode. See docs/decisions/0014.
struct PaceOptions {
  // The longest step while a sequence decodes, which is the longest gap between two of its tokens; 0: any.
  // Where decoding alone takes more than half of it, reading may take as long as decoding.
  double max_gap_seconds = 0.5;
  // What each decoding sequence keeps of the rate that one alone would have, on average, from 0 to 1; 0:
  // nothing is promised. Reading is never slowed to less than a third of the time.
  double min_decode_share = 0.3;
};

// What a step was and what it took.
struct StepCost {
  int64_t decode_rows = 0;
  int64_t prefill_tokens = 0;
  double seconds = 0;
};

// Chooses how many tokens of prompts the next step reads, from what the last ones took. Chunks never change
// results, so nothing but time depends on the choice.
//
// It learns two things: what a step takes by its decoding rows alone, and what a token of a prompt adds, by
// the size of the chunk (small chunks cost more a token, deep ones too). A chunk that took longer than
// expected counts at once, one that took less only by and by, and the next is at most twice the last. When
// a step as long as the gap allows would break the share, steps that only decode follow it until the
// average is right: few large chunks cost less than many small ones.
//
// One thread.
class ChunkController {
 public:
  // `max_chunk` >= 1: the most tokens of prompts in one step; up to `max_rows` decode in one.
  ChunkController(PaceOptions options, int64_t max_chunk, int max_rows);

  // For a step in which prompts wait and `decode_rows` sequences decode: at most so many tokens. 0: none in
  // this step; never 0 when nobody decodes.
  int64_t NextChunk(int64_t decode_rows) const;

  void OnStep(const StepCost& cost);

  // What a step with so many decoding rows and no prompts is thought to take; nullopt before any was seen.
  std::optional<double> DecodeSeconds(int64_t rows) const;

 private:
  // Chunks of [2^i, 2^(i+1)) tokens are of size class i.
  static constexpr int kSizeClasses = 40;

  // The longest step, and what one may take on average; infinite where nothing is promised or known.
  double StepLimit(int64_t decode_rows) const;
  double MeanSeconds() const;
  double TokenSeconds(int size_class) const;
  // The largest chunk that is thought to take at most `seconds`.
  int64_t FittingChunk(double seconds) const;
  void OnChunk(const StepCost& cost, double alone);
  void LearnDecode(const StepCost& cost);
  void LearnDeviation(const StepCost& cost, double alone);
  void LearnChunk(const StepCost& cost, double chunk_seconds);

  const PaceOptions options_;
  const int64_t max_chunk_;

  std::vector<double> decode_seconds_;  // by rows, from steps without prompts; 0: not seen
  // What a token adds, by size class; 0: not seen.
  std::array<double, kSizeClasses> token_seconds_{};
  int64_t last_chunk_;    // beside decoding rows
  double deviation_ = 0;  // of steps from what was expected, relative

  double debt_seconds_ = 0;            // by how much decoding is behind its share; below 0: ahead
  double pause_seconds_ = 0;           // that it may take to make that good
  double since_chunk_seconds_ = 0;     // of steps, since prompts were read last
  bool surprised_ = false;             // by a step with a chunk, since then
  int64_t chunks_since_measured_ = 0;  // since a step showed what decoding alone takes
};

}  // namespace millrace::engine
