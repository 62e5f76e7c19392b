#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

namespace millrace::cache {
namespace {

constexpr int64_t kPage = 4;
constexpr size_t kPageBytes = 64;

class PrefixTreeTest : public testing::Test {
 protected:
  void Make(uint32_t n_pages, uint32_t n_tails = 0) {
    tree_.reset();
    pages_ = std::move(PagePool::Create(kPageBytes, n_pages)).value();
    tree_ = std::move(PrefixTree::Create(
                          *pages_, {.page_tokens = kPage, .tail_bytes = 16, .n_tails = n_tails}, &ledger_))
                .value();
  }

  std::vector<TokenId> Tokens(const std::string& text) { return {text.begin(), text.end()}; }

  // Puts the whole pages of `text` into the tree, held; the deepest node.
  PageId Read(const std::string& text) {
    const std::vector<TokenId> tokens = Tokens(text);
    std::vector<PageId> path;
    tree_->Find(tokens, path);
    std::optional<PageId> node;
    if (!path.empty()) {
      node = path.back();
      tree_->Hold(*node);
    }
    for (size_t at = path.size() * kPage; at + kPage <= tokens.size(); at += kPage) {
      Result<PageId> page = tree_->Allocate();
      EXPECT_TRUE(page.ok());
      node = tree_->Extend(node, std::span(tokens).subspan(at, kPage), *page);
    }
    return *node;
  }
  size_t Found(const std::string& text) {
    std::vector<PageId> path;
    tree_->Find(Tokens(text), path);
    return path.size();
  }
  void ExpectSound(uint64_t holds) {
    const Status sound = tree_->CheckIntegrity(holds);
    EXPECT_TRUE(sound.ok()) << sound.error().message();
  }

  MemoryLedger ledger_;
  std::unique_ptr<PagePool> pages_;
  std::unique_ptr<PrefixTree> tree_;
};

TEST_F(PrefixTreeTest, FindsTheLongestRunOfWholePages) {
  Make(16);
  tree_->Release(Read("aaaabbbbcccc"));
  EXPECT_EQ(Found("aaaabbbbccccdddd"), 3u);
  EXPECT_EQ(Found("aaaabbbbccc"), 2u);
  EXPECT_EQ(Found("aaaabbbbcccd"), 2u);
  EXPECT_EQ(Found("aaaxbbbbcccc"), 0u);
  EXPECT_EQ(Found("bbbbcccc"), 0u) << "a page behind others is not that of a beginning";
  EXPECT_EQ(Found("aaa"), 0u);
  ExpectSound(0);
}

TEST_F(PrefixTreeTest, TheSamePageOfTwoSequencesIsKeptOnce) {
  Make(16);
  const PageId first = *tree_->Allocate();
  const PageId second = *tree_->Allocate();
  const PageId node = tree_->Extend(std::nullopt, Tokens("aaaa"), first);
  EXPECT_EQ(tree_->Extend(std::nullopt, Tokens("aaaa"), second), node);
  EXPECT_EQ(pages_->free_pages(), 15u);
  tree_->Release(node);
  EXPECT_EQ(tree_->stats().evictable_pages, 0u) << "the other sequence reads it still";
  tree_->Release(node);
  EXPECT_EQ(tree_->stats().evictable_pages, 1u);
}

TEST_F(PrefixTreeTest, EvictsTheLeastUsedFromTheirEnds) {
  Make(6);
  tree_->Release(Read("aaaabbbb"));
  tree_->Release(Read("ccccdddd"));
  tree_->Release(Read("aaaaeeee"));  // "aaaa" is used again, "bbbb" is not
  const PageId held = Read("ffff");
  EXPECT_EQ(pages_->free_pages(), 0u);
  std::vector<PageId> taken;
  const auto take = [&] { taken.push_back(*tree_->Allocate()); };
  take();
  EXPECT_EQ(Found("aaaabbbb"), 1u);
  take();
  EXPECT_EQ(Found("ccccdddd"), 1u);
  take();
  EXPECT_EQ(Found("ccccdddd"), 0u);
  take();
  EXPECT_EQ(Found("aaaaeeee"), 1u);
  take();
  EXPECT_EQ(Found("aaaaeeee"), 0u);
  EXPECT_FALSE(tree_->Allocate().ok()) << "the last page is held";
  EXPECT_EQ(tree_->stats().evicted_pages, 5u);
  ExpectSound(1);
  tree_->Release(held);
  for (const PageId page : taken) pages_->Free(page);
}

TEST_F(PrefixTreeTest, TailsGiveWayEarlyOnesFirst) {
  Make(8, 2);
  const PageId a = Read("aaaa"), b = Read("bbbb"), c = Read("cccc");
  std::optional<TailId> slot;  // the latest
  const auto put = [&](PageId node, TailKind kind) {
    slot = tree_->AllocateTail(kind);
    return slot && tree_->AttachTail(node, *slot, kind);
  };
  EXPECT_TRUE(put(a, TailKind::kFull));
  const TailId of_a = *slot;
  EXPECT_TRUE(put(b, TailKind::kEarly));
  EXPECT_TRUE(put(c, TailKind::kFull)) << "in the place of b's";
  EXPECT_FALSE(tree_->TailOf(b).has_value());
  EXPECT_FALSE(put(b, TailKind::kEarly)) << "no full tail gives way to an early one";
  tree_->UseTail(a);
  EXPECT_TRUE(put(b, TailKind::kFull));
  EXPECT_TRUE(tree_->TailOf(a).has_value());
  EXPECT_FALSE(tree_->TailOf(c).has_value());
  // One that is no better is not taken.
  EXPECT_EQ(tree_->stats().tails, 2u);
  tree_->DropTail(a, *slot);
  EXPECT_TRUE(tree_->TailOf(a).has_value()) << "that is the tail of another";
  tree_->DropTail(a, of_a);
  EXPECT_FALSE(tree_->TailOf(a).has_value());
  EXPECT_FALSE(put(b, TailKind::kEarly));
  EXPECT_EQ(tree_->TailOf(b)->kind, TailKind::kFull);
  EXPECT_EQ(tree_->stats().tails, 1u);
  ExpectSound(3);
  for (const PageId node : {a, b, c}) tree_->Release(node);
  tree_->Clear();
  EXPECT_EQ(tree_->stats().tails, 0u) << "a tail goes with its page";
}

TEST_F(PrefixTreeTest, TheLedgerKnowsTreeAndTails) {
  Make(8, 3);
  std::map<std::string, uint64_t> planned;
  for (const MemoryAccount* account : ledger_.accounts()) planned[account->name()] = account->planned_bytes();
  EXPECT_EQ(planned["prefix tree"], PrefixTree::TreeBytes(kPage, 8));
  EXPECT_GT(planned["prefix tails"], 0u);
}

// Against a plain model: every page that was put in and not evicted is found, and no other.
TEST_F(PrefixTreeTest, RandomUseKeepsEverythingSound) {
  std::mt19937 rng(3);
  for (int round = 0; round < 40; ++round) {
    Make(5 + rng() % 40, rng() % 6);
    struct Reader {
      std::optional<PageId> node;
      std::string text;  // whole pages
    };
    std::vector<Reader> readers(4);
    std::map<std::string, PageId> content;  // text of a page and all before it -> page when it was put in
    for (int step = 0; step < 600; ++step) {
      Reader& reader = readers[rng() % readers.size()];
      const uint64_t dice = rng() % 12;
      if (dice < 2) {
        if (reader.node) tree_->Release(*reader.node);
        reader = {};
      } else if (dice < 4 && !reader.node) {
        std::string text;
        for (int page = 0; page < 6; ++page) text += std::string(kPage, static_cast<char>('a' + rng() % 2));
        std::vector<PageId> path;
        tree_->Find(Tokens(text), path);
        std::string prefix;
        for (const PageId page : path) {
          prefix += text.substr(prefix.size(), kPage);
          ASSERT_TRUE(content.contains(prefix));
          EXPECT_EQ(content[prefix], page);
        }
        if (!path.empty()) {
          reader = {path.back(), prefix};
          tree_->Hold(*reader.node);
        }
      } else if (dice < 10) {
        if (reader.text.size() > 12 * kPage) continue;
        Result<PageId> page = tree_->Allocate();
        EXPECT_EQ(page.ok(), tree_->available_pages() > 0 || page.ok());
        if (!page.ok()) continue;
        const std::string more(kPage, static_cast<char>('a' + rng() % 2));
        const PageId node = tree_->Extend(reader.node, Tokens(more), *page);
        reader = {node, reader.text + more};
        content[reader.text] = node;
      } else if (reader.node) {
        const TailKind kind = rng() % 2 ? TailKind::kFull : TailKind::kEarly;
        const auto slot = tree_->AllocateTail(kind);
        if (slot && tree_->AttachTail(*reader.node, *slot, kind) && rng() % 3 == 0)
          tree_->DropTail(*reader.node, *slot);
      }
      uint64_t holds = 0;
      for (const Reader& one : readers) {
        if (!one.node) continue;
        ++holds;
        EXPECT_EQ(Found(one.text), one.text.size() / kPage) << "what a sequence holds stays";
      }
      ExpectSound(holds);
    }
    for (Reader& reader : readers) {
      if (reader.node) tree_->Release(*reader.node);
    }
    EXPECT_EQ(tree_->available_pages(), pages_->n_pages());
  }
}

}  // namespace
}  // namespace millrace::cache
