#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "base/ledger.h"

namespace millrace {

class ByteReservation;

// Planned memory that many share: each reserves what it is about to hold, and is refused when too little is
// left. Any thread.
class ByteBudget : public std::enable_shared_from_this<ByteBudget> {
 public:
  static std::shared_ptr<ByteBudget> Create(size_t limit_bytes);

  // From here on `account` (outlives the budget) holds what is reserved. Call before the first Reserve.
  void SetAccount(MemoryAccount& account) { account_ = &account; }

  // Nothing when fewer than `bytes` are left.
  std::optional<ByteReservation> Reserve(size_t bytes);
  size_t reserved_bytes() const { return reserved_.load(std::memory_order_relaxed); }

 private:
  friend class ByteReservation;
  explicit ByteBudget(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  void Release(size_t bytes);

  const size_t limit_bytes_;
  std::atomic<size_t> reserved_{0};
  MemoryAccount* account_ = nullptr;
};

// A part of a budget, given back with its end; travels with the memory that it stands for, to whatever thread
// holds that. One thread at a time.
class ByteReservation {
 public:
  ByteReservation() = default;
  ~ByteReservation() { ShrinkTo(0); }
  ByteReservation(ByteReservation&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  ByteReservation& operator=(ByteReservation&& other) noexcept;

  size_t bytes() const { return bytes_; }
  // Takes over what `other` holds, of the same budget.
  void Merge(ByteReservation other);
  // Gives back what is above `bytes`.
  void ShrinkTo(size_t bytes);

 private:
  friend class ByteBudget;
  ByteReservation(std::shared_ptr<ByteBudget> budget, size_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {}

  std::shared_ptr<ByteBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace millrace
