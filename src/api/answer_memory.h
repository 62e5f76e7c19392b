#pragma once

#include <cstdint>
#include <memory>

#include "base/byte_budget.h"
#include "base/ledger.h"

namespace millrace::api {

// What a token of a running sequence may take of its answer's memory: its id, its text, with what strings and
// vectors grow ahead.
inline constexpr uint64_t kAnswerBytesPerToken = 32;
// What writing the end of the one answer that is written at a time may take beside, for each of its tokens:
// texts of 6 bytes, in as many copies as the dialect that says them most often (FormatMemory::text_copies).
inline constexpr uint64_t kWritingBytesPerToken = 120;
// What a sequence takes before its first token, waiting or running: parser, matchers, sinks.
inline constexpr uint64_t kAnswerBytesPerSequence = 4096;
// And its request beside: the names of its tools, its stop strings, what its answer repeats. What a request
// has more of is reserved.
inline constexpr uint64_t kAnswerBytesPerRequest = 16384;

// Memory of the answers that are under way, from their first token until they are sent.
//
// Every sequence that runs has its part by the plan, kAnswerBytesPerToken for each token it can have, and the
// one answer that is being written at a time kWritingBytesPerToken: nothing is reserved for these. Whatever
// an answer takes beyond (log-probabilities, finished choices that wait for the others, tokens with long
// texts) is reserved of a part of fixed size that all share, before the first token half of it by one request
// at most. One thread; reservations may end on any.
class AnswerBudget {
 public:
  // `account` (optional) outlives the budget.
  AnswerBudget(uint64_t shared_bytes, int64_t max_model_len, MemoryAccount* account);

  // The most that the account holds, with so many sequences running and so many places in all.
  static uint64_t PlanBytes(uint64_t shared_bytes, int64_t max_model_len, int max_num_seqs, int max_queue);

  uint64_t shared_bytes() const { return shared_bytes_; }
  // What one request may reserve before its first token.
  uint64_t most_of_one() const { return shared_bytes_ / 2; }
  uint64_t reserved_bytes() const { return shared_->reserved_bytes(); }
  // What may be written of an answer without a reservation.
  uint64_t writing_bytes() const { return writing_bytes_; }

 private:
  friend class AnswerMemory;

  const uint64_t shared_bytes_;
  const uint64_t writing_bytes_;
  MemoryAccount* const account_;
  const std::shared_ptr<ByteBudget> shared_;
};

// What the answer to one request takes of the budget; may outlive it, and end on another thread. One thread
// at a time.
class AnswerMemory {
 public:
  explicit AnswerMemory(const AnswerBudget& budget) : account_(budget.account_), shared_(budget.shared_) {}
  ~AnswerMemory() { Count(0); }
  AnswerMemory(const AnswerMemory&) = delete;
  AnswerMemory& operator=(const AnswerMemory&) = delete;

  // Sets `bytes` of the shared part aside, for what is held later. False: so much is not left.
  bool Reserve(uint64_t bytes);

  // The answer takes `bytes` more, and `planned` more of what it takes need no reservation; either may be
  // negative. False: the rest is more than what was set aside and more than is left; it is not counted then.
  [[nodiscard]] bool Change(int64_t bytes, int64_t planned);

  // What was set aside, down to `bytes`, to travel with an answer that is written; nothing of it when less
  // was. The rest is given back: the answer takes nothing any more.
  ByteReservation Take(uint64_t bytes);

 private:
  // Into the account, what needs no reservation.
  void Count(uint64_t bytes);

  MemoryAccount* const account_;
  const std::shared_ptr<ByteBudget> shared_;
  ByteReservation reserved_;
  int64_t bytes_ = 0;
  int64_t planned_ = 0;
  uint64_t counted_ = 0;
};

}  // namespace millrace::api
