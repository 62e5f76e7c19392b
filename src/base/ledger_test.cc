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

}  // namespace
}  // namespace millrace
