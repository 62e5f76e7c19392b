#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/layer_plan.h"

namespace millrace::model {

// Tokens of one page of global state; a multiple of every compress ratio and of the candidate block.
inline constexpr int64_t kPageTokens = 256;

// Where one KV source's entries sit in a page. Entry e of the page (0 .. entries-1) is position e * ratio of
// the page's tokens. All four arrays are contiguous over entries:
//   latent codes  e2m1, two a byte, even channel in the low nibble  [entries, head_dim / 2]
//   latent scales e4m3, one per 16 channels                         [entries, head_dim / 16]
//   key codes     e2m1, as above                                    [entries, index_head_dim / 2]
//   key scales    ue8m0, one per 32 channels                        [entries, index_head_dim / 32]
struct SourcePageLayout {
  int layer = 0;
  int64_t ratio = 0;
  int64_t entries = 0;                                                        // kPageTokens / ratio
  size_t latent_codes = 0, latent_scales = 0, key_codes = 0, key_scales = 0;  // byte offsets in the page
};

// The global state of kPageTokens consecutive tokens: all KV sources together, 890 bytes a token for the
// released model.
struct PageLayout {
  explicit PageLayout(const LayerPlan& plan);

  std::vector<SourcePageLayout> sources;  // by KV-source order
  size_t page_bytes = 0;
};

// Everything of one sequence that survives between calls except its pages (shared/spec/v41-text.md, section
// 9): window rings, unfinished compressor groups, n-gram history, length. Fixed size. One thread.
class SequenceState {
 public:
  explicit SequenceState(const LayerPlan& plan);
  static size_t BytesFor(const LayerPlan& plan);

  int64_t length() const { return length_; }
  // Forgets all tokens; the page table stays.
  void Reset();

  // The pages that hold (or will hold) this sequence's global state, in order. The owner keeps them alive and
  // provides page length / kPageTokens before the forward pass writes it.
  std::vector<std::byte*> pages;

  // [window slots, head_dim] codes and [window slots, head_dim / 32] ue8m0 scales of layer l; position p is
  // slot p % slots.
  std::span<uint8_t> window_codes(int l);
  std::span<uint8_t> window_scales(int l);
  // [head_dim] compressor projection and gate logits of the pending token of KV source s (by source order).
  std::span<float> partial_kv(int s);
  std::span<float> partial_gate(int s);
  // Compressed ids of the last engram_max_ngram_size - 1 positions, oldest first; kBeforeStart before
  // position 0.
  std::vector<int32_t> ngram_history;

  void AdvanceTo(int64_t length) { length_ = length; }

 private:
  int64_t length_ = 0;
  int64_t window_slots_;
  int64_t head_dim_;
  std::vector<uint8_t> window_;
  std::vector<float> partial_;
  size_t window_layer_bytes_;
};

}  // namespace millrace::model
