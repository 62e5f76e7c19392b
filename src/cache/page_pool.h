#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/ledger.h"
#include "base/result.h"

namespace millrace::cache {

// A fixed number of equal pages in one mapped region, each with one owner: who has taken it, or whom that has
// handed it to (who shares pages holds nodes of a PrefixTree). All address space is reserved at
// construction; memory becomes resident when a page is first written, and freed pages are reused last in,
// first out, so residency stays near the peak use. One thread.
class PagePool {
 public:
  // Maps `n_pages` pages of `page_bytes` bytes (both >= 1), each aligned to kPageAlignment. The account
  // `name` of `ledger` (optional; outlives the pool) is planned at the whole region and live by allocated
  // pages. kResourceExhausted with the numbers when the system refuses the memory.
  static Result<std::unique_ptr<PagePool>> Create(size_t page_bytes, uint32_t n_pages,
                                                  MemoryLedger* ledger = nullptr,
                                                  std::string name = "kv pages");
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  static constexpr size_t kPageAlignment = 64;
  // Bytes of the region and of the bookkeeping.
  static uint64_t BytesFor(size_t page_bytes, uint32_t n_pages);

  size_t page_bytes() const { return page_bytes_; }
  uint32_t n_pages() const { return static_cast<uint32_t>(taken_.size()); }
  uint32_t free_pages() const { return static_cast<uint32_t>(free_.size()); }

  // A page; its content is unspecified. kResourceExhausted when none is free.
  Result<PageId> Allocate();
  // `n` pages or none, appended to `pages`.
  Status AllocateMany(uint32_t n, std::vector<PageId>& pages);

  // CHECKs that the page is allocated: freeing twice would give one page to two sequences.
  void Free(PageId page);
  bool is_allocated(PageId page) const { return page.value < taken_.size() && taken_[page.value] != 0; }

  // [page_bytes] of an allocated page; valid until it is freed.
  std::byte* Data(PageId page);

  // Whether every page is either allocated or in the free list, once. kCorrupt names the first page that is
  // not. Walks all pages.
  Status CheckIntegrity() const;

 private:
  PagePool(std::byte* region, size_t region_bytes, size_t page_bytes, uint32_t n_pages,
           MemoryAccount* account);

  std::byte* region_;
  size_t region_bytes_;
  size_t page_bytes_;
  size_t stride_;  // page_bytes_ rounded up to kPageAlignment
  MemoryAccount* account_;
  std::vector<uint8_t> taken_;  // by page; 0: free
  std::vector<PageId> free_;    // the back is taken next
};

}  // namespace millrace::cache
