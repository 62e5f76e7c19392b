#include "base/byte_budget.h"

#include "base/check.h"

namespace millrace {

std::shared_ptr<ByteBudget> ByteBudget::Create(size_t limit_bytes) {
  return std::shared_ptr<ByteBudget>(new ByteBudget(limit_bytes));
}

std::optional<ByteReservation> ByteBudget::Reserve(size_t bytes) {
  size_t reserved = reserved_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_bytes_ - reserved) return std::nullopt;
  } while (!reserved_.compare_exchange_weak(reserved, reserved + bytes, std::memory_order_relaxed));
  if (account_ != nullptr) account_->Add(bytes);
  return ByteReservation(shared_from_this(), bytes);
}

void ByteBudget::Release(size_t bytes) {
  if (account_ != nullptr) account_->Remove(bytes);
  reserved_.fetch_sub(bytes, std::memory_order_relaxed);
}

ByteReservation& ByteReservation::operator=(ByteReservation&& other) noexcept {
  if (this == &other) return *this;
  ShrinkTo(0);
  budget_ = std::move(other.budget_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void ByteReservation::Merge(ByteReservation other) {
  MILLRACE_CHECK(budget_ == nullptr || other.budget_ == nullptr || budget_ == other.budget_,
                 "memory of two budgets in one reservation");
  if (budget_ == nullptr) budget_ = other.budget_;
  bytes_ += std::exchange(other.bytes_, 0);
}

void ByteReservation::ShrinkTo(size_t bytes) {
  if (bytes >= bytes_) return;
  budget_->Release(bytes_ - bytes);
  bytes_ = bytes;
}

}  // namespace millrace
