#include "model/batch_layout.h"

#include <algorithm>

#include "base/check.h"

namespace millrace::model {

BatchLayout::BatchLayout(const LayerPlan& plan, const ForwardOptions& options)
    : window_(plan.config.sliding_window) {
  items_.reserve(static_cast<size_t>(options.max_batch_items));
  tokens_.reserve(static_cast<size_t>(options.max_batch_tokens));
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
    const Item item{.state = in.state,
                    .first_token = static_cast<int64_t>(tokens_.size()),
                    .n_tokens = static_cast<int64_t>(in.tokens.size()),
                    .start = in.state->length(),
                    .window_first = window_row,
                    .window_before = std::min(in.state->length(), window_ - 1)};
    for (int64_t i = 0; i < item.n_tokens; ++i) {
      tokens_.push_back({.item = static_cast<int32_t>(items_.size()),
                         .id = in.tokens[static_cast<size_t>(i)],
                         .position = item.start + i});
    }
    window_row += item.window_before + item.n_tokens;
    items_.push_back(item);
  }
}

int64_t BatchLayout::WindowRow(int64_t t) const {
  const Item& item = ItemOf(tokens_[static_cast<size_t>(t)]);
  return item.window_first + item.window_before + (t - item.first_token);
}

}  // namespace millrace::model
