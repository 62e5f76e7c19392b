#include "engine/chunk_controller.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace millrace::engine {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// Reading goes on at this rate however long it takes: on a slow machine such a step may exceed the limit.
constexpr int64_t kSmallestChunk = 4;
constexpr double kGrowth = 2;  // of a chunk over the one before
// Aim below the limit: by this much on a machine that always does the same, and by so many times what its
// steps differ from what was expected of them.
constexpr double kLeastMargin = 0.05;
constexpr double kDeviations = 2;
constexpr double kMostMargin = 0.5;
constexpr double kDeviationEase = 0.1;
// The share of a new measurement in an estimate when it is lower. Higher ones count in full.
constexpr double kEase = 0.25;
constexpr double kDecodeEase = 0.3;
constexpr double kMostDecodeRise = 3;  // of one look: a machine that slept is no slower than it was
// What makes one size of chunk dearer, a deeper prompt or a busy machine, makes all dearer: by how much of
// it.
constexpr double kTrust = 0.8;
// A token of a chunk half as large as any seen costs so many times more.
constexpr double kSmallerChunkFactor = 1.3;
// Time without reading after a chunk is at most so many times what the chunk took, the decoding beside it
// included: a third for reading, by the clock and not by estimates.
constexpr double kMostDecoding = 2;
constexpr double kMostPauseSeconds = 60;
// Where decoding alone takes long, a step may take so many times as much.
constexpr double kStepSlowdown = 2;
// What decoding alone takes is looked at after so many chunks beside it.
constexpr int64_t kMeasureEvery = 64;
// And after so many if one was a surprise: it took this much more or less than was expected.
constexpr int64_t kMeasureSoonest = 8;
constexpr double kSurprise = 0.3;

int SizeClass(int64_t tokens) {
  return std::bit_width(static_cast<uint64_t>(tokens)) - 1;
}

}  // namespace

ChunkController::ChunkController(PaceOptions options, int64_t max_chunk, int max_rows)
    : options_(options),
      max_chunk_(max_chunk),
      decode_seconds_(static_cast<size_t>(max_rows) + 1),
      last_chunk_(std::min(kSmallestChunk, max_chunk)) {
  MILLRACE_CHECK(max_chunk >= 1 && SizeClass(max_chunk) < kSizeClasses,
                 "a chunk without tokens, or too large");
  MILLRACE_CHECK(
      options.max_gap_seconds >= 0 && options.min_decode_share >= 0 && options.min_decode_share <= 1,
      "pace options out of range: the flags' parser must refuse them");
}

int64_t ChunkController::NextChunk(int64_t decode_rows) const {
  const bool paced = options_.max_gap_seconds > 0 || options_.min_decode_share > 0;
  if (decode_rows == 0 || !paced) return max_chunk_;
  // Look first, at the beginning and now and then: all else is reckoned from it.
  const auto alone = DecodeSeconds(decode_rows);
  if (!alone || chunks_since_measured_ >= (surprised_ ? kMeasureSoonest : kMeasureEvery)) return 0;
  const double limit = StepLimit(decode_rows);
  if (debt_seconds_ > 0 && since_chunk_seconds_ + *alone <= pause_seconds_) return 0;
  if (limit == kUnlimited) return max_chunk_;
  const auto growth = static_cast<int64_t>(kGrowth * static_cast<double>(last_chunk_));
  const int64_t least = std::min(kSmallestChunk, max_chunk_);
  const double margin = std::min(kMostMargin, kLeastMargin + kDeviations * deviation_);
  return std::clamp(FittingChunk((1 - margin) * limit - *alone), least,
                    std::max(least, std::min(growth, max_chunk_)));
}

void ChunkController::OnStep(const StepCost& cost) {
  if (cost.decode_rows == 0) {
    debt_seconds_ = 0;
    // Weights are read for the chunk alone here: too dear, but better than nothing.
    const bool unknown =
        cost.prefill_tokens > 0 && token_seconds_[static_cast<size_t>(SizeClass(cost.prefill_tokens))] == 0;
    if (unknown) LearnChunk(cost, cost.seconds);
    return;
  }
  if (cost.prefill_tokens == 0) {
    LearnDecode(cost);
    since_chunk_seconds_ += cost.seconds;
  } else {
    const double alone = DecodeSeconds(cost.decode_rows).value_or(0);
    OnChunk(cost, alone);
    LearnDeviation(cost, alone);
    // Less than decoding alone: that belief is wrong, and nothing is to be learned of the chunk.
    if (cost.seconds > alone) LearnChunk(cost, cost.seconds - alone);
  }
  const double mean = MeanSeconds();
  // What is left over of one step may be used by the next ones, no more.
  if (mean < kUnlimited) debt_seconds_ = std::max(-mean, debt_seconds_ + cost.seconds - mean);
}

void ChunkController::OnChunk(const StepCost& cost, double alone) {
  ++chunks_since_measured_;
  last_chunk_ = cost.prefill_tokens;
  // Of a step that was longer than it may be, a machine that slept, only what it may be.
  const double reading = std::min(cost.seconds, StepLimit(cost.decode_rows)) - alone;
  pause_seconds_ = std::clamp(kMostDecoding * reading - alone, 0.0, kMostPauseSeconds);
  since_chunk_seconds_ = 0;
  // What could not be made good until now is forgiven.
  debt_seconds_ = std::min(debt_seconds_, 0.0);
}

std::optional<double> ChunkController::DecodeSeconds(int64_t rows) const {
  const auto known = [](double seconds) { return seconds > 0; };
  const auto at =
      decode_seconds_.begin() + std::min<int64_t>(rows, static_cast<int64_t>(decode_seconds_.size()) - 1);
  if (known(*at)) return *at;
  // Of the nearest count of rows that was seen, rather fewer.
  const auto fewer = std::find_if(std::make_reverse_iterator(at), decode_seconds_.rend(), known);
  if (fewer != decode_seconds_.rend()) return *fewer;
  const auto more = std::find_if(at, decode_seconds_.end(), known);
  if (more != decode_seconds_.end()) return *more;
  return std::nullopt;
}

double ChunkController::StepLimit(int64_t decode_rows) const {
  if (options_.max_gap_seconds == 0) return kUnlimited;
  return std::max(options_.max_gap_seconds, kStepSlowdown * DecodeSeconds(decode_rows).value_or(0));
}

double ChunkController::MeanSeconds() const {
  const auto solo = DecodeSeconds(1);
  if (options_.min_decode_share == 0 || !solo) return kUnlimited;
  return *solo / options_.min_decode_share;
}

double ChunkController::TokenSeconds(int size_class) const {
  const auto at = static_cast<size_t>(size_class);
  if (token_seconds_[at] > 0) return token_seconds_[at];
  // Larger chunks cost less a token: the next smaller is on the safe side.
  for (size_t i = at; i-- > 0;)
    if (token_seconds_[i] > 0) return token_seconds_[i];
  double factor = 1;
  for (size_t i = at; i < token_seconds_.size(); ++i, factor *= kSmallerChunkFactor)
    if (token_seconds_[i] > 0) return factor * token_seconds_[i];
  return 0;
}

int64_t ChunkController::FittingChunk(double seconds) const {
  for (int size_class = SizeClass(max_chunk_); size_class >= 0; --size_class) {
    const double token = TokenSeconds(size_class);
    const int64_t smallest = int64_t{1} << size_class;
    const int64_t largest = std::min(2 * smallest - 1, max_chunk_);
    if (token == 0) return 0;  // nothing was seen yet
    if (seconds < token * static_cast<double>(smallest)) continue;
    return static_cast<int64_t>(std::min(seconds / token, static_cast<double>(largest)));
  }
  return 0;
}

void ChunkController::LearnDecode(const StepCost& cost) {
  const double before = DecodeSeconds(cost.decode_rows).value_or(0);
  const auto last = static_cast<int64_t>(decode_seconds_.size()) - 1;
  double& seconds = decode_seconds_[static_cast<size_t>(std::min(cost.decode_rows, last))];
  const bool known = seconds > 0;
  const double measured = known ? std::min(cost.seconds, kMostDecodeRise * seconds) : cost.seconds;
  seconds += (known && !surprised_ ? kDecodeEase : 1) * (measured - seconds);
  chunks_since_measured_ = 0;
  surprised_ = false;
  // What was taken for decoding was the chunk's: steps like the last would take as long as it did.
  const double token = TokenSeconds(SizeClass(last_chunk_));
  if (seconds >= before || token == 0) return;
  const double more = (before - seconds) / static_cast<double>(last_chunk_);
  for (double& each : token_seconds_) each *= 1 + more / token;
}

void ChunkController::LearnDeviation(const StepCost& cost, double alone) {
  constexpr double kMost = 0.5;  // that one step can add
  const double token = TokenSeconds(SizeClass(cost.prefill_tokens));
  if (token == 0) return;
  const double expected = alone + token * static_cast<double>(cost.prefill_tokens);
  const double deviation = std::min(kMost, std::abs(cost.seconds / expected - 1));
  surprised_ = surprised_ || deviation > kSurprise || cost.seconds <= alone;
  deviation_ += kDeviationEase * (deviation - deviation_);
}

void ChunkController::LearnChunk(const StepCost& cost, double chunk_seconds) {
  // An estimate of nothing could never grow by a factor.
  constexpr double kLeast = 1e-9;
  const double token = std::max(kLeast, chunk_seconds / static_cast<double>(cost.prefill_tokens));
  const auto at = static_cast<size_t>(SizeClass(cost.prefill_tokens));
  if (token_seconds_[at] == 0) token_seconds_[at] = token;
  const double ratio = token / token_seconds_[at];
  const double weight = ratio > 1 ? 1 : kEase;
  for (double& seconds : token_seconds_) seconds *= std::pow(ratio, kTrust * weight);
  token_seconds_[at] *= std::pow(ratio, (1 - kTrust) * weight);
  // A token is no dearer in a larger chunk: a size that was slow once would never be tried again.
  for (size_t i = 0; i < token_seconds_.size(); ++i) {
    if (token_seconds_[i] == 0) continue;
    token_seconds_[i] = i < at ? std::max(token_seconds_[i], token_seconds_[at])
                               : std::min(token_seconds_[i], token_seconds_[at]);
  }
}

}  // namespace millrace::engine
