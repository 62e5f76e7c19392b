#include "model/sequence_state.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "model/engram_hash.h"

namespace millrace::model {
namespace {

size_t HistorySize(const formats::ModelConfig& c) {
  return c.engram_layer_ids.empty() ? 0 : static_cast<size_t>(c.engram_max_ngram_size - 1);
}

}  // namespace

PageLayout::PageLayout(const LayerPlan& plan, int64_t page_tokens_in)
    : page_tokens(page_tokens_in),
      head_dim(plan.config.head_dim),
      index_head_dim(plan.config.index_head_dim) {
  size_t at = 0;
  const auto take = [&](int64_t entries, int64_t bytes_per_entry) {
    const size_t offset = at;
    at += static_cast<size_t>(entries * bytes_per_entry);
    return offset;
  };
  for (int layer : plan.kv_sources) {
    SourcePageLayout source;
    source.ratio = plan.layers[static_cast<size_t>(layer)].ratio;
    source.entries = page_tokens / source.ratio;
    source.latent_codes = take(source.entries, head_dim / 2);
    source.latent_scales = take(source.entries, head_dim / 16);
    source.key_codes = take(source.entries, index_head_dim / 2);
    source.key_scales = take(source.entries, index_head_dim / 32);
    sources.push_back(source);
  }
  page_bytes = RoundUp(std::max<size_t>(at, 1), 64);
}

WindowLayout::WindowLayout(const LayerPlan& plan)
    : window_(plan.config.sliding_window),
      head_dim_(plan.config.head_dim),
      layer_bytes_(static_cast<size_t>(window_ * (head_dim_ + head_dim_ / 32))),
      bytes_(plan.layers.size() * layer_bytes_) {}

SequenceState::SequenceState(const LayerPlan& plan)
    : head_dim_(plan.config.head_dim),
      windows_(plan),
      rings_(windows_.bytes()),
      partials_(plan.kv_sources.size() * 2 * static_cast<size_t>(head_dim_)) {
  ngram_history.assign(HistorySize(plan.config), kDeadClass);
}

size_t SequenceState::BytesFor(const LayerPlan& plan) {
  const formats::ModelConfig& c = plan.config;
  return sizeof(SequenceState) + WindowLayout(plan).bytes() +
         plan.kv_sources.size() * 2 * static_cast<size_t>(c.head_dim) * sizeof(float) +
         HistorySize(c) * sizeof(int32_t);
}

void SequenceState::Reset() {
  AdvanceTo(0, 0);
  exact_from_ = 0;
  shared_tokens_ = 0;
  std::fill(ngram_history.begin(), ngram_history.end(), kDeadClass);
}

bool SequenceState::CanGive(const LayerPlan& plan, int64_t position) const {
  if (position >= results_from_) return true;
  return position >= exact_from_ && plan.FirstEvaluated(plan.first_late_layer(), position) >= length_;
}

void SequenceState::Restore(int64_t length, int64_t shared_tokens, int64_t results_from, int64_t exact_from,
                            std::span<const std::byte> rings) {
  MILLRACE_CHECK(rings.empty() || rings.size() == rings_.size(), "a tail of another model");
  MILLRACE_CHECK(length <= shared_tokens, "a state resumed behind its pages");
  if (rings.empty()) {
    std::fill(rings_.begin(), rings_.end(), uint8_t{0});
  } else {
    std::memcpy(rings_.data(), rings.data(), rings.size());
  }
  AdvanceTo(length, results_from);
  exact_from_ = exact_from;
  shared_tokens_ = shared_tokens;
}

EntryRef SequenceState::Entry(const PageLayout& layout, int s, int64_t j) const {
  const SourcePageLayout& source = layout.sources[static_cast<size_t>(s)];
  const auto page = static_cast<size_t>(j / source.entries);
  const auto e = static_cast<size_t>(j % source.entries);
  MILLRACE_CHECK(page < pages.size(), "the owner provides pages before the forward pass needs them");
  auto* base = reinterpret_cast<uint8_t*>(pages[page]);
  const auto dim = static_cast<size_t>(layout.head_dim);
  const auto index_dim = static_cast<size_t>(layout.index_head_dim);
  return {.latent_codes = base + source.latent_codes + e * (dim / 2),
          .latent_scales = base + source.latent_scales + e * (dim / 16),
          .key_codes = base + source.key_codes + e * (index_dim / 2),
          .key_scales = base + source.key_scales + e * (index_dim / 32)};
}

std::span<float> SequenceState::partial_kv(int s) {
  const auto dim = static_cast<size_t>(head_dim_);
  return std::span(partials_).subspan(static_cast<size_t>(s) * 2 * dim, dim);
}

std::span<float> SequenceState::partial_gate(int s) {
  const auto dim = static_cast<size_t>(head_dim_);
  return std::span(partials_).subspan((static_cast<size_t>(s) * 2 + 1) * dim, dim);
}

}  // namespace millrace::model
