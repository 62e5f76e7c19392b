#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/forward.h"
#include "model/layer_plan.h"

namespace millrace::model {

// Where each token of the running batch stands. A batch starts with all tokens of the call; late layers leave
// out those whose results nobody asks for (BeginLayer, LeaveOut), and what loops over the batch never sees
// them again. Capacity is fixed at construction; nothing else allocates.
class BatchLayout {
 public:
  // `plan` outlives the object.
  BatchLayout(const LayerPlan& plan, const ForwardOptions& options);

  static uint64_t BytesFor(const ForwardOptions& options);

  struct Item {
    SequenceState* state = nullptr;
    int64_t first_token = 0;  // row of the item's first token in the batch
    int64_t n_tokens = 0;
    int64_t start = 0;         // position of the first token
    int64_t results_from = 0;  // first position whose results matter, at least the first of the call
    int64_t n_left_out = 0;    // how many of its first tokens the running layer leaves out
    int64_t window_first = 0;  // row in window_codes of position window_start
    int64_t window_start = 0;  // the oldest position in reach of the call's first token
    int64_t call_start = 0;    // position of the call's first token, whatever was left out since
    std::span<const TailRequest> tails;
  };
  struct Token {
    int32_t item = 0;
    TokenId id = 0;
    int64_t position = 0;
  };

  void Assign(std::span<const BatchItem> items);

  // Marks the tokens that layer `l` leaves out once their window entries (and what its compressor needs) are
  // made.
  void BeginLayer(int l);
  bool leaves_out() const { return n_kept_ < n_tokens(); }
  int64_t n_kept() const { return n_kept_; }
  // Rows of the other tokens, ascending; null when that is all of them. Live until LeaveOut.
  const int32_t* kept_rows() const { return leaves_out() ? kept_rows_.data() : nullptr; }
  // Takes the marked tokens away: row i is then what kept_rows()[i] was. Items stay, some without tokens.
  void LeaveOut();

  std::span<const Item> items() const { return items_; }
  std::span<const Token> tokens() const { return tokens_; }
  int64_t n_tokens() const { return static_cast<int64_t>(tokens_.size()); }
  const Item& ItemOf(const Token& token) const { return items_[static_cast<size_t>(token.item)]; }

  // Row in window_codes of the item's position `position`, from window_start on. Does not change while tokens
  // are left out.
  int64_t WindowRow(const Item& item, int64_t position) const {
    return item.window_first + position - item.window_start;
  }
  // Row in window_codes of batch token `t`.
  int64_t WindowRow(int64_t t) const {
    const Token& token = tokens_[static_cast<size_t>(t)];
    return WindowRow(ItemOf(token), token.position);
  }
  // The positions before the batch whose window entries the running layer's kept tokens read: from here up to
  // item.start.
  int64_t FirstEarlierEntry(const Item& item) const;

 private:
  const LayerPlan& plan_;
  LateLayers late_layers_;
  std::vector<Item> items_;
  std::vector<Token> tokens_;
  std::vector<int32_t> kept_rows_;  // meaningful when tokens are left out
  int64_t n_kept_ = 0;
};

}  // namespace millrace::model
