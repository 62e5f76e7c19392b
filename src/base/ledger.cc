#include "base/ledger.h"

#include <utility>

#include "base/check.h"

namespace millrace {

void MemoryAccount::Add(uint64_t bytes) {
  const uint64_t live = live_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (live > peak && !peak_bytes_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

void MemoryAccount::Remove(uint64_t bytes) {
  const uint64_t before = live_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  MILLRACE_CHECK(before >= bytes, "more bytes removed from an account than it holds");
}

MemoryAccount& MemoryLedger::Open(std::string name, uint64_t planned_bytes) {
  std::lock_guard lock(mutex_);
  return accounts_.emplace_back(std::move(name), planned_bytes);
}

std::vector<const MemoryAccount*> MemoryLedger::accounts() const {
  std::lock_guard lock(mutex_);
  std::vector<const MemoryAccount*> all;
  for (const MemoryAccount& account : accounts_) all.push_back(&account);
  return all;
}

HeldMemory::HeldMemory(std::span<const PlannedMemory> lines, MemoryLedger* ledger) {
  if (ledger == nullptr) return;
  for (const PlannedMemory& line : lines) {
    accounts_.push_back(&ledger->Open(line.name, line.bytes));
    accounts_.back()->Add(line.bytes);
  }
}

HeldMemory::~HeldMemory() {
  for (MemoryAccount* account : accounts_) account->Remove(account->planned_bytes());
}

HeldMemory& HeldMemory::operator=(HeldMemory&& other) noexcept {
  std::swap(accounts_, other.accounts_);
  return *this;
}

}  // namespace millrace
