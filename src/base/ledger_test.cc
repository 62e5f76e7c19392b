#include "base/ledger.h"

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

TEST(MemoryLedger, KeepsLiveAndPeakPerName) {
  MemoryLedger ledger;
  MemoryAccount& pages = ledger.Open("kv pages", 1000);
  pages.Add(600);
  pages.Remove(500);
  pages.Add(200);
  ASSERT_EQ(ledger.accounts().size(), 1u);
  const MemoryAccount* seen = ledger.accounts()[0];
  EXPECT_EQ(seen->name(), "kv pages");
  EXPECT_EQ(seen->planned_bytes(), 1000u);
  EXPECT_EQ(seen->live_bytes(), 300u);
  EXPECT_EQ(seen->peak_bytes(), 600u);
}

TEST(MemoryLedger, AddsUpFromManyThreads) {
  MemoryLedger ledger;
  MemoryAccount& account = ledger.Open("x", 0);
  std::thread other([&] {
    for (int i = 0; i < 10000; ++i) account.Add(2);
  });
  for (int i = 0; i < 10000; ++i) account.Add(1);
  other.join();
  EXPECT_EQ(account.live_bytes(), 30000u);
  EXPECT_EQ(account.peak_bytes(), 30000u);
}

TEST(HeldMemory, FillsItsAccountsWhileItLives) {
  MemoryLedger ledger;
  const std::vector<PlannedMemory> lines = {{"a", 3}, {"b", 5}};
  {
    HeldMemory held(lines, &ledger);
    const HeldMemory moved = std::move(held);
    EXPECT_EQ(ledger.accounts()[0]->live_bytes(), 3u);
    EXPECT_EQ(ledger.accounts()[1]->live_bytes(), 5u);
  }
  EXPECT_EQ(ledger.accounts()[1]->name(), "b");
  EXPECT_EQ(ledger.accounts()[1]->live_bytes(), 0u);
  EXPECT_EQ(ledger.accounts()[1]->peak_bytes(), 5u);
  const HeldMemory nowhere(lines, nullptr);
}

}  // namespace
}  // namespace millrace
