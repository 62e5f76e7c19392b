#include "cache/page_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace millrace::cache {
namespace {

constexpr size_t kHugePageBytes = 2 * kMiB;

size_t Stride(size_t page_bytes) {
  return RoundUp(page_bytes, PagePool::kPageAlignment);
}

size_t RegionBytes(size_t page_bytes, uint32_t n_pages) {
  return RoundUp(Stride(page_bytes) * n_pages, kHugePageBytes);
}

}  // namespace

Result<std::unique_ptr<PagePool>> PagePool::Create(size_t page_bytes, uint32_t n_pages, MemoryLedger* ledger,
                                                   std::string name) {
  MILLRACE_CHECK(page_bytes >= 1 && n_pages >= 1, "a pool without pages");
  const size_t bytes = RegionBytes(page_bytes, n_pages);
  // No MAP_NORESERVE: where the system accounts commitments, it refuses now and not at the first write.
  void* region = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region == MAP_FAILED) {
    return Error(
        ErrorCode::kResourceExhausted,
        fmt::format("{}: the system refused {} for {} pages of {} bytes ({}); lower --max-model-len, "
                    "--max-num-seqs or --prefix-cache-tails",
                    name, HumanBytes(bytes), n_pages, page_bytes, std::strerror(errno)));
  }
  madvise(region, bytes, MADV_HUGEPAGE);  // advice: without huge pages the pool is only slower
  MemoryAccount* account = ledger ? &ledger->Open(std::move(name), bytes) : nullptr;
  return std::unique_ptr<PagePool>(
      new PagePool(static_cast<std::byte*>(region), bytes, page_bytes, n_pages, account));
}

PagePool::PagePool(std::byte* region, size_t region_bytes, size_t page_bytes, uint32_t n_pages,
                   MemoryAccount* account)
    : region_(region),
      region_bytes_(region_bytes),
      page_bytes_(page_bytes),
      stride_(Stride(page_bytes)),
      account_(account),
      taken_(n_pages, 0) {
  free_.reserve(n_pages);
  for (uint32_t page = n_pages; page-- > 0;) free_.push_back({page});
}

PagePool::~PagePool() {
  if (account_) account_->Remove(uint64_t{n_pages() - free_pages()} * stride_);
  munmap(region_, region_bytes_);
}

uint64_t PagePool::BytesFor(size_t page_bytes, uint32_t n_pages) {
  return RegionBytes(page_bytes, n_pages) + uint64_t{n_pages} * (sizeof(uint8_t) + sizeof(PageId));
}

Result<PageId> PagePool::Allocate() {
  if (free_.empty()) {
    return Error(ErrorCode::kResourceExhausted, fmt::format("all {} pages are in use", n_pages()));
  }
  const PageId page = free_.back();
  free_.pop_back();
  taken_[page.value] = 1;
  if (account_) account_->Add(stride_);
  return page;
}

Status PagePool::AllocateMany(uint32_t n, std::vector<PageId>& pages) {
  if (n > free_pages()) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} pages are needed, {} of {} are free", n, free_pages(), n_pages()));
  }
  pages.reserve(pages.size() + n);
  for (uint32_t i = 0; i < n; ++i) pages.push_back(*Allocate());
  return {};
}

void PagePool::Free(PageId page) {
  MILLRACE_CHECK(is_allocated(page), "a page is freed that is free already");
  taken_[page.value] = 0;
  free_.push_back(page);
  if (account_) account_->Remove(stride_);
}

std::byte* PagePool::Data(PageId page) {
  MILLRACE_CHECK(is_allocated(page), "the bytes of a free page were asked for");
  return region_ + page.value * stride_;
}

Status PagePool::CheckIntegrity() const {
  std::vector<bool> listed(taken_.size(), false);
  for (PageId page : free_) {
    if (page.value >= taken_.size()) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("the free list has page {} of {}", page.value, n_pages()));
    }
    if (listed[page.value]) {
      return Error(ErrorCode::kCorrupt, fmt::format("page {} is in the free list twice", page.value));
    }
    listed[page.value] = true;
  }
  for (size_t page = 0; page < taken_.size(); ++page) {
    if (listed[page] == (taken_[page] != 0)) {
      return Error(ErrorCode::kCorrupt, fmt::format("page {} is {} the free list", page,
                                                    listed[page] ? "allocated and in" : "free and not in"));
    }
  }
  return {};
}

}  // namespace millrace::cache
