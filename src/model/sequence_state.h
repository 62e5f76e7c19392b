#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/layer_plan.h"

namespace millrace::model {

// Tokens of one page of global state; a multiple of every compress ratio.
inline constexpr int64_t kPageTokens = 256;
// Tests use smaller pages, down to this size, to have more of them.
inline constexpr int64_t kMinPageTokens = 32;

// Where one KV source's entries sit in a page. Entry e of the page is that of the page's tokens e * ratio ..
// e * ratio + ratio - 1. All four arrays are contiguous over entries:
//   latent codes  e2m1, two a byte, even channel in the low nibble  [entries, head_dim / 2]
//   latent scales e4m3, one per 16 channels                         [entries, head_dim / 16]
//   key codes     e2m1, as above                                    [entries, index_head_dim / 2]
//   key scales    ue8m0, one per 32 channels                        [entries, index_head_dim / 32]
struct SourcePageLayout {
  int64_t ratio = 0;
  int64_t entries = 0;                                                        // page tokens / ratio
  size_t latent_codes = 0, latent_scales = 0, key_codes = 0, key_scales = 0;  // byte offsets in the page
};

// The global state of a page's consecutive tokens: all KV sources together, 890 bytes a token for the
// released model (shared/spec/v41-text.md, section 9.1).
struct PageLayout {
  // `page_tokens` is a power of two, at least kMinPageTokens.
  explicit PageLayout(const LayerPlan& plan, int64_t page_tokens = kPageTokens);

  int64_t page_tokens = 0;
  std::vector<SourcePageLayout> sources;  // in LayerPlan::kv_sources order
  int64_t head_dim = 0;
  int64_t index_head_dim = 0;
  size_t page_bytes = 0;
};

// One stored entry of a KV source: where its codes and scales are.
struct EntryRef {
  uint8_t* latent_codes = nullptr;
  uint8_t* latent_scales = nullptr;
  uint8_t* key_codes = nullptr;
  uint8_t* key_scales = nullptr;
};

// Where window entries sit in a block of the rings of all layers. Layer by layer: [sliding_window, head_dim]
// e4m3 codes, then [sliding_window, head_dim / 32] ue8m0 scales; position p is slot p % sliding_window. A
// sequence's own rings and the tails of the prefix cache have this layout.
class WindowLayout {
 public:
  explicit WindowLayout(const LayerPlan& plan);

  size_t bytes() const { return bytes_; }
  // Byte offsets in the block.
  size_t codes(int l, int64_t position) const {
    return static_cast<size_t>(l) * layer_bytes_ + static_cast<size_t>(position % window_ * head_dim_);
  }
  size_t scales(int l, int64_t position) const {
    return static_cast<size_t>(l) * layer_bytes_ +
           static_cast<size_t>(window_ * head_dim_ + position % window_ * (head_dim_ / 32));
  }

 private:
  int64_t window_;
  int64_t head_dim_;
  size_t layer_bytes_;
  size_t bytes_;
};

// Everything of one sequence that survives between calls except its pages (shared/spec/v41-text.md,
// section 9.2): window rings, unfinished compressor groups, n-gram history, length. Fixed size after
// construction. One thread.
class SequenceState {
 public:
  explicit SequenceState(const LayerPlan& plan);
  // Bytes one state holds, pages not included.
  static size_t BytesFor(const LayerPlan& plan);

  int64_t length() const { return length_; }
  // The first position whose results the rings can still give; 0 when no layer has left a token out. At a
  // length of at least this, everything is exact: the sequence may go on, or be copied, for any purpose. At a
  // smaller one (inside a prompt) pages, unfinished groups, history and the rings below
  // LayerPlan::first_late_layer are exact, later rings are not: all that can follow is the rest of the
  // prompt.
  int64_t results_from() const { return results_from_; }
  // Whether results from `position` on can be had: from results_from() on, and from an earlier one as long as
  // the late layers have left out nothing that it needs. `plan` is the one it was made for.
  bool CanGive(const LayerPlan& plan, int64_t position) const;
  // Forgets all tokens; the page table stays.
  void Reset();
  // Puts the state behind `length` tokens that another sequence has computed: `pages` hold the entries of the
  // first `shared_tokens` (whole pages, >= `length`), `rings` ([WindowLayout::bytes], or empty: zeros) are
  // those of a tail. Results may be asked for from `results_from` on; LayerPlan says when that is exact. From
  // `exact_from` on rings that are lost, or not those of all layers, have been made again.
  // Forward::Resume calls it.
  void Restore(int64_t length, int64_t shared_tokens, int64_t results_from, int64_t exact_from,
               std::span<const std::byte> rings);
  // Entries of tokens before this position are in `pages` already, and other sequences may read them: they
  // are neither made nor written again.
  int64_t shared_tokens() const { return shared_tokens_; }
  // Called by the forward pass when the tokens up to `length` are in place. Late layers have left out what
  // only results before `results_from` would need.
  void AdvanceTo(int64_t length, int64_t results_from) {
    length_ = length;
    results_from_ = results_from;
  }

  // The pages that hold (or will hold) this sequence's global state, in order; aligned to 64 bytes. The owner
  // keeps them alive and provides page length / page tokens before the forward pass writes it.
  std::vector<std::byte*> pages;

  // Entry j of KV source s.
  EntryRef Entry(const PageLayout& layout, int s, int64_t j) const;

  uint8_t* window_codes(int l, int64_t position) { return rings_.data() + windows_.codes(l, position); }
  uint8_t* window_scales(int l, int64_t position) { return rings_.data() + windows_.scales(l, position); }

  // Compressor projection and gate logits [head_dim] of the pending token of KV source s; meaningful while
  // the length is odd and the source's ratio is 2.
  std::span<float> partial_kv(int s);
  std::span<float> partial_gate(int s);

  // Compressed ids of the last engram_max_ngram_size - 1 positions, oldest first; kDeadClass before position
  // 0.
  std::vector<int32_t> ngram_history;

 private:
  int64_t head_dim_;
  int64_t length_ = 0;
  int64_t results_from_ = 0;
  int64_t exact_from_ = 0;
  int64_t shared_tokens_ = 0;
  WindowLayout windows_;
  std::vector<uint8_t> rings_;   // [windows_.bytes()]
  std::vector<float> partials_;  // [kv sources, 2, head_dim]
};

}  // namespace millrace::model
