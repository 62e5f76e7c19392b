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

// Where one KV source's entries sit in a page. Entry e of the page is that of the page's tokens e * ratio ..
// e * ratio + ratio - 1. All four arrays are contiguous over entries:
//   latent codes  e2m1, two a byte, even channel in the low nibble  [entries, head_dim / 2]
//   latent scales e4m3, one per 16 channels                         [entries, head_dim / 16]
//   key codes     e2m1, as above                                    [entries, index_head_dim / 2]
//   key scales    ue8m0, one per 32 channels                        [entries, index_head_dim / 32]
struct SourcePageLayout {
  int64_t ratio = 0;
  int64_t entries = 0;                                                        // kPageTokens / ratio
  size_t latent_codes = 0, latent_scales = 0, key_codes = 0, key_scales = 0;  // byte offsets in the page
};

// The global state of kPageTokens consecutive tokens: all KV sources together, 890 bytes a token for the
// released model (shared/spec/v41-text.md, section 9.1).
struct PageLayout {
  explicit PageLayout(const LayerPlan& plan);

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
  // Forgets all tokens; the page table stays.
  void Reset();
  // Called by the forward pass when the tokens up to `length` are in place. Late layers have left out what
  // only results before `results_from` would need.
  void AdvanceTo(int64_t length, int64_t results_from) {
    length_ = length;
    results_from_ = results_from;
  }

  // The pages that hold (or will hold) this sequence's global state, in order; aligned to 64 bytes. The owner
  // keeps them alive and provides page length / kPageTokens before the forward pass writes it.
  std::vector<std::byte*> pages;

  // Entry j of KV source s.
  EntryRef Entry(const PageLayout& layout, int s, int64_t j) const;

  // The ring of layer l: [sliding_window, head_dim] e4m3 codes and [sliding_window, head_dim / 32] ue8m0
  // scales; position p is slot p % sliding_window.
  uint8_t* window_codes(int l, int64_t position);
  uint8_t* window_scales(int l, int64_t position);

  // Compressor projection and gate logits [head_dim] of the pending token of KV source s; meaningful while
  // the length is odd and the source's ratio is 2.
  std::span<float> partial_kv(int s);
  std::span<float> partial_gate(int s);

  // Compressed ids of the last engram_max_ngram_size - 1 positions, oldest first; kDeadClass before position
  // 0.
  std::vector<int32_t> ngram_history;

 private:
  int64_t window_;
  int64_t head_dim_;
  size_t ring_bytes_;  // of one layer
  int64_t length_ = 0;
  int64_t results_from_ = 0;
  std::vector<uint8_t> rings_;
  std::vector<float> partials_;  // [kv sources, 2, head_dim]
};

}  // namespace millrace::model
