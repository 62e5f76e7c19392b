#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

namespace millrace::cache {
namespace {

std::unique_ptr<PagePool> MakePool(size_t page_bytes, uint32_t n_pages, MemoryLedger* ledger = nullptr) {
  auto pool = PagePool::Create(page_bytes, n_pages, ledger);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

TEST(PagePool, GivesEveryPageOnceThenIsExhausted) {
  const auto pool = MakePool(100, 5);
  std::set<uint32_t> seen;
  for (int i = 0; i < 5; ++i) {
    const PageId page = *pool->Allocate();
    EXPECT_TRUE(seen.insert(page.value).second);
    EXPECT_LT(page.value, 5u);
  }
  EXPECT_EQ(pool->free_pages(), 0u);
  const auto none = pool->Allocate();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(none.error().message(), "all 5 pages are in use");
}

TEST(PagePool, PagesAreAlignedAndApart) {
  const auto pool = MakePool(100, 9);
  std::vector<PageId> pages;
  ASSERT_TRUE(pool->AllocateMany(9, pages).ok());
  for (PageId page : pages) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pool->Data(page)) % PagePool::kPageAlignment, 0u);
    std::memset(pool->Data(page), static_cast<int>(page.value) + 1, pool->page_bytes());
  }
  for (PageId page : pages) {
    for (size_t i = 0; i < pool->page_bytes(); ++i) {
      ASSERT_EQ(pool->Data(page)[i], static_cast<std::byte>(page.value + 1));
    }
  }
}

TEST(PagePool, AllocateManyIsAllOrNothing) {
  const auto pool = MakePool(64, 4);
  std::vector<PageId> pages;
  ASSERT_TRUE(pool->AllocateMany(3, pages).ok());
  const Status refused = pool->AllocateMany(2, pages);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(), "2 pages are needed, 1 of 4 are free");
  EXPECT_EQ(pages.size(), 3u);
  EXPECT_EQ(pool->free_pages(), 1u);
  EXPECT_TRUE(pool->AllocateMany(0, pages).ok());
}

TEST(PagePool, ReusesTheLastFreedPageFirst) {
  const auto pool = MakePool(64, 8);
  const PageId first = *pool->Allocate();
  const PageId second = *pool->Allocate();
  pool->Free(second);
  pool->Free(first);
  EXPECT_EQ(*pool->Allocate(), first);
  EXPECT_EQ(*pool->Allocate(), second);
}

TEST(PagePoolDeathTest, FreeingTwiceIsRefused) {
  const auto pool = MakePool(64, 2);
  const PageId page = *pool->Allocate();
  pool->Free(page);
  EXPECT_DEATH(pool->Free(page), "freed that is free already");
  EXPECT_DEATH(pool->Free({7}), "freed that is free already");
}

TEST(PagePoolDeathTest, AFreePageHasNoBytes) {
  const auto pool = MakePool(64, 2);
  const PageId page = *pool->Allocate();
  pool->Free(page);
  EXPECT_DEATH((void)pool->Data(page), "free page");
}

TEST(PagePool, TheLedgerSeesPlannedLiveAndPeak) {
  MemoryLedger ledger;
  {
    const auto pool = MakePool(100, 10, &ledger);  // 128 bytes apart
    ASSERT_EQ(ledger.accounts().size(), 1u);
    const MemoryAccount& account = *ledger.accounts()[0];
    EXPECT_EQ(account.name(), "kv pages");
    EXPECT_EQ(account.planned_bytes(), 2u << 20);
    std::vector<PageId> pages;
    ASSERT_TRUE(pool->AllocateMany(3, pages).ok());
    EXPECT_EQ(account.live_bytes(), 3u * 128);
    pool->Free(pages[0]);
    EXPECT_EQ(account.live_bytes(), 2u * 128);
    EXPECT_EQ(account.peak_bytes(), 3u * 128);
  }
  EXPECT_EQ(ledger.accounts()[0]->live_bytes(), 0u);
}

TEST(PagePool, RefusedMemoryIsAnErrorWithTheNumbers) {
  const auto pool = PagePool::Create(size_t{1} << 30, 1u << 24);  // 16 PiB: more than the address space
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(pool.error().message().find("16777216 pages of 1073741824 bytes"), std::string::npos)
      << pool.error().message();
}

// Against a model that is a plain map, with the integrity check after every operation.
TEST(PagePool, RandomUseKeepsItsIntegrity) {
  const auto pool = MakePool(64, 37);
  std::set<uint32_t> taken;
  std::mt19937 rng(1);
  for (int i = 0; i < 20000; ++i) {
    const PageId page{static_cast<uint32_t>(rng() % 37)};
    EXPECT_EQ(pool->is_allocated(page), taken.contains(page.value));
    if (rng() % 2 == 0) {
      if (const auto got = pool->Allocate(); got.ok()) {
        ASSERT_TRUE(taken.insert(got->value).second);
      } else {
        ASSERT_EQ(taken.size(), 37u);
      }
    } else if (taken.erase(page.value) > 0) {
      pool->Free(page);
    }
    const Status sound = pool->CheckIntegrity();
    ASSERT_TRUE(sound.ok()) << sound.error().message();
    ASSERT_EQ(pool->free_pages(), 37 - taken.size());
  }
}

}  // namespace
}  // namespace millrace::cache
