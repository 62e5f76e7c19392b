#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/planned_memory.h"

namespace millrace {

// One named budget of the process's memory: what was planned for it, what it holds, the most it held.
// Any thread may add and read.
class MemoryAccount {
 public:
  MemoryAccount(std::string name, uint64_t planned_bytes)
      : name_(std::move(name)), planned_bytes_(planned_bytes) {}

  const std::string& name() const { return name_; }
  uint64_t planned_bytes() const { return planned_bytes_; }
  uint64_t live_bytes() const { return live_bytes_.load(std::memory_order_relaxed); }
  uint64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }

  void Add(uint64_t bytes);
  // `bytes` was added before.
  void Remove(uint64_t bytes);

 private:
  std::string name_;
  uint64_t planned_bytes_;
  std::atomic<uint64_t> live_bytes_{0};
  std::atomic<uint64_t> peak_bytes_{0};
};

// The list of all accounts, in the order they were opened; metrics and the plan's comparison read it.
// Any thread. Accounts live as long as the ledger.
class MemoryLedger {
 public:
  MemoryAccount& Open(std::string name, uint64_t planned_bytes);
  std::vector<const MemoryAccount*> accounts() const;

 private:
  mutable std::mutex mutex_;
  std::deque<MemoryAccount> accounts_;
};

// Bytes of an account (nullptr: of none) that are held as long as the object lives.
class HeldBytes {
 public:
  HeldBytes(MemoryAccount* account, uint64_t bytes) : account_(account), bytes_(bytes) {
    if (account_ != nullptr) account_->Add(bytes_);
  }
  ~HeldBytes() {
    if (account_ != nullptr) account_->Remove(bytes_);
  }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  void Grow(uint64_t bytes) {
    if (account_ != nullptr) account_->Add(bytes);
    bytes_ += bytes;
  }

 private:
  MemoryAccount* const account_;
  uint64_t bytes_;
};

// Memory of fixed size that is held as planned: opens an account for each line and fills it for as long as
// the object lives. `ledger` (nullptr: nothing is counted) outlives it.
class HeldMemory {
 public:
  HeldMemory() = default;
  HeldMemory(std::span<const PlannedMemory> lines, MemoryLedger* ledger);
  ~HeldMemory();
  HeldMemory(HeldMemory&&) noexcept = default;
  HeldMemory& operator=(HeldMemory&& other) noexcept;

 private:
  std::vector<MemoryAccount*> accounts_;
};

}  // namespace millrace
