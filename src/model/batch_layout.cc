#include "model/batch_layout.h"

#include <algorithm>

#include "base/check.h"

namespace millrace::model {
namespace {

// The first position of the call whose results matter, or a later one when none of the call does.
int64_t FirstResult(const BatchItem& item, LateLayers late_layers) {
  const int64_t start = item.state->length();
  const int64_t last = start + static_cast<int64_t>(item.tokens.size()) - 1;
  if (item.logits == LogitsWanted::kAll) return start;
  // A state resumed without its rings has nothing to give before its results_from, unless it is asked for.
  if (late_layers == LateLayers::kAll)
    return std::max(start, std::min(item.results_from, item.state->results_from()));
  const int64_t from = std::max(item.results_from, start);
  return item.logits == LogitsWanted::kLast ? std::min(from, last) : from;
}

}  // namespace

BatchLayout::BatchLayout(const LayerPlan& plan, const ForwardOptions& options)
    : plan_(plan), late_layers_(options.late_layers) {
  items_.reserve(static_cast<size_t>(options.max_batch_items));
  tokens_.reserve(static_cast<size_t>(options.max_batch_tokens));
  kept_rows_.reserve(static_cast<size_t>(options.max_batch_tokens));
}

uint64_t BatchLayout::BytesFor(const ForwardOptions& options) {
  return static_cast<uint64_t>(options.max_batch_items) * sizeof(Item) +
         static_cast<uint64_t>(options.max_batch_tokens) * (sizeof(Token) + sizeof(int32_t));
}

void BatchLayout::Assign(std::span<const BatchItem> items) {
  MILLRACE_CHECK(items.size() <= items_.capacity(), "more items than the scratch is planned for");
  items_.clear();
  tokens_.clear();
  int64_t window_row = 0;
  for (const BatchItem& in : items) {
    MILLRACE_CHECK(!in.tokens.empty(), "an item without tokens");
    MILLRACE_CHECK(tokens_.size() + in.tokens.size() <= tokens_.capacity(),
                   "more tokens than the scratch is planned for");
    const int64_t start = in.state->length();
    const Item item{.state = in.state,
                    .first_token = n_tokens(),
                    .n_tokens = static_cast<int64_t>(in.tokens.size()),
                    .start = start,
                    .results_from = FirstResult(in, late_layers_),
                    .window_first = window_row,
                    .window_start = std::max<int64_t>(0, start - (plan_.config.sliding_window - 1)),
                    .call_start = start,
                    .tails = in.tails};
    for (const TailRequest& tail : in.tails) {
      MILLRACE_CHECK(tail.length > start && tail.length <= start + item.n_tokens,
                     "a tail is wanted of a length that the item does not pass");
    }
    MILLRACE_CHECK(in.state->CanGive(plan_, item.results_from),
                   "results are wanted of positions that the late layers have left out");
    for (int64_t i = 0; i < item.n_tokens; ++i) {
      tokens_.push_back({.item = static_cast<int32_t>(items_.size()),
                         .id = in.tokens[static_cast<size_t>(i)],
                         .position = start + i});
    }
    window_row += start - item.window_start + item.n_tokens;
    items_.push_back(item);
  }
  n_kept_ = n_tokens();
}

void BatchLayout::BeginLayer(int l) {
  if (l < plan_.first_late_layer()) return;
  for (Item& item : items_) {
    item.n_left_out =
        std::clamp<int64_t>(plan_.FirstEvaluated(l, item.results_from) - item.start, 0, item.n_tokens);
    n_kept_ -= item.n_left_out;
  }
  if (!leaves_out()) return;
  kept_rows_.clear();
  for (const Item& item : items_) {
    for (int64_t i = item.n_left_out; i < item.n_tokens; ++i) {
      kept_rows_.push_back(static_cast<int32_t>(item.first_token + i));
    }
  }
}

void BatchLayout::LeaveOut() {
  if (!leaves_out()) return;
  int64_t row = 0;
  for (Item& item : items_) {
    item.start += item.n_left_out;
    item.n_tokens -= item.n_left_out;
    std::copy_n(tokens_.begin() + item.first_token + item.n_left_out, item.n_tokens, tokens_.begin() + row);
    item.first_token = row;
    item.n_left_out = 0;
    row += item.n_tokens;
  }
  tokens_.resize(static_cast<size_t>(row));
}

int64_t BatchLayout::FirstEarlierEntry(const Item& item) const {
  if (item.n_left_out == item.n_tokens) return item.start;
  const int64_t first_kept = item.start + item.n_left_out;
  return std::clamp<int64_t>(first_kept - (plan_.config.sliding_window - 1), 0, item.start);
}

}  // namespace millrace::model
