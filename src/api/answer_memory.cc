#include "api/answer_memory.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/units.h"

namespace millrace::api {
namespace {

// An answer that outgrows what was set aside for it reserves so much at a time, where so much is left.
constexpr uint64_t kStepBytes = 64 * kKiB;

}  // namespace

AnswerBudget::AnswerBudget(uint64_t shared_bytes, int64_t max_model_len, MemoryAccount* account)
    : shared_bytes_(shared_bytes),
      writing_bytes_(static_cast<uint64_t>(max_model_len) * kWritingBytesPerToken),
      account_(account),
      shared_(ByteBudget::Create(shared_bytes)) {
  if (account != nullptr) shared_->SetAccount(*account);
}

uint64_t AnswerBudget::PlanBytes(uint64_t shared_bytes, int64_t max_model_len, int max_num_seqs,
                                 int max_queue) {
  const auto sequences = static_cast<uint64_t>(max_num_seqs);
  const auto length = static_cast<uint64_t>(max_model_len);
  return shared_bytes + (sequences * kAnswerBytesPerToken + kWritingBytesPerToken) * length +
         (sequences + static_cast<uint64_t>(max_queue)) * (kAnswerBytesPerSequence + kAnswerBytesPerRequest);
}

bool AnswerMemory::Reserve(uint64_t bytes) {
  std::optional<ByteReservation> more = shared_->Reserve(bytes);
  if (!more) return false;
  reserved_.Merge(*std::move(more));
  return true;
}

bool AnswerMemory::Change(int64_t bytes, int64_t planned) {
  const int64_t all = bytes_ + bytes;
  const int64_t within_plan = std::clamp<int64_t>(planned_ + planned, 0, all);
  const auto beyond = static_cast<uint64_t>(all - within_plan);
  if (beyond > reserved_.bytes()) {
    const uint64_t missing = beyond - reserved_.bytes();
    if (!Reserve(std::max(missing, kStepBytes)) && !Reserve(missing)) return false;
  }
  bytes_ = all;
  planned_ += planned;
  Count(static_cast<uint64_t>(within_plan));
  return true;
}

ByteReservation AnswerMemory::Take(uint64_t bytes) {
  Count(0);
  bytes_ = 0;
  planned_ = 0;
  ByteReservation taken = std::exchange(reserved_, {});
  taken.ShrinkTo(taken.bytes() < bytes ? 0 : bytes);
  return taken;
}

void AnswerMemory::Count(uint64_t bytes) {
  if (account_ != nullptr) {
    if (bytes > counted_) account_->Add(bytes - counted_);
    if (bytes < counted_) account_->Remove(counted_ - bytes);
  }
  counted_ = bytes;
}

}  // namespace millrace::api
