#include "model/forward.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/check.h"
#include "kernels/hyper_connection.h"
#include "kernels/rms_norm.h"
#include "model/sites.h"

namespace millrace::model {
namespace {

constexpr int64_t kSliceChannels = 1024;  // of a token's streams that one thread mixes

size_t ScratchBytes(const LayerPlan& plan, const ForwardOptions& options, int n_threads) {
  Arena arena;
  const ForwardScratch measured(plan, options, n_threads, arena);
  return arena.used();
}

// One block of zeroed memory from the operating system.
class ScratchBlock {
 public:
  explicit ScratchBlock(size_t bytes) : bytes_(bytes) {
    void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    block_ = static_cast<std::byte*>(block);
    madvise(block, bytes, MADV_HUGEPAGE);  // advice: without huge pages the pass is only slower
  }
  ~ScratchBlock() { munmap(block_, bytes_); }
  ScratchBlock(const ScratchBlock&) = delete;
  ScratchBlock& operator=(const ScratchBlock&) = delete;

  std::byte* data() const { return block_; }

 private:
  size_t bytes_;
  std::byte* block_ = nullptr;
};

kernels::RopeTable CompressRope(const formats::ModelConfig& config) {
  const auto theta = static_cast<float>(config.compress_rope_theta);
  if (!config.rope_scaling) return kernels::RopeTable::Plain(config.qk_rope_head_dim, theta);
  return kernels::RopeTable::Yarn(
      config.qk_rope_head_dim, theta,
      {.factor = config.rope_scaling->factor,
       .beta_fast = config.rope_scaling->beta_fast,
       .beta_slow = config.rope_scaling->beta_slow,
       .original_max_position_embeddings = config.rope_scaling->original_max_position_embeddings});
}

}  // namespace

struct Forward::Impl {
  Impl(const Checkpoint& checkpoint, LayerPlan layer_plan, EngramHash hash, ThreadPool& thread_pool,
       ForwardOptions forward_options, MemoryLedger* ledger)
      : plan(std::move(layer_plan)),
        options(forward_options),
        engram(std::move(hash)),
        weights(checkpoint, plan, ledger),
        pages(plan, forward_options.page_tokens),
        main_rope(kernels::RopeTable::Plain(plan.config.qk_rope_head_dim,
                                            static_cast<float>(plan.config.rope_theta))),
        compress_rope(CompressRope(plan.config)),
        pool(thread_pool),
        held(PlanScratch(plan, options, pool.size()), ledger),
        block(ScratchBytes(plan, options, pool.size())),
        arena(block.data()),
        scratch(plan, options, pool.size(), arena),
        batch(plan, options),
        context{.plan = plan,
                .weights = weights,
                .pages = pages,
                .engram = engram,
                .main_rope = main_rope,
                .compress_rope = compress_rope,
                .pool = pool,
                .scratch = scratch,
                .batch = batch,
                .numerics = options.numerics} {
    weights.MarkOrdinary(pool);
  }

  void Embed();
  void RunLayer(int l);
  // Steps 1-7 before the sublayer: mixing coefficients, collapse, norm. Leaves the sublayer's input in
  // site_in.
  void BeginSite(int l, const char* site, const HyperConnectionWeights& hc, const std::vector<float>& norm);
  // Step 8 and 9: expand, hand the new collapse weights on.
  void EndSite(int l, const char* site, const char* streams_name);
  void Logits(std::span<const BatchItem> items, std::span<float> logits);

  LayerPlan plan;
  ForwardOptions options;
  EngramHash engram;
  Weights weights;
  PageLayout pages;
  kernels::RopeTable main_rope;
  kernels::RopeTable compress_rope;
  ThreadPool& pool;
  HeldMemory held;
  ScratchBlock block;
  Arena arena;
  ForwardScratch scratch;
  BatchLayout batch;
  ForwardContext context;
};

void Forward::Impl::Embed() {
  const int64_t hidden = plan.config.hidden_size;
  const int64_t streams = plan.config.hc_mult;
  const int64_t pairs = main_rope.pairs();
  context.ForEachToken([&](int64_t t, WorkerScratch&) {
    const BatchLayout::Token& token = batch.tokens()[static_cast<size_t>(t)];
    float* x = scratch.streams.data() + t * streams * hidden;
    kernels::DecodeRow(weights.embed(), token.id, x);
    for (int64_t j = 1; j < streams; ++j) std::copy_n(x, hidden, x + j * hidden);
    float* pre = scratch.pre.data() + t * streams;
    std::fill_n(pre, streams, 0.0f);
    pre[0] = 1.0f;
    main_rope.At(token.position, scratch.main_cos.data() + t * pairs, scratch.main_sin.data() + t * pairs);
    compress_rope.At(token.position, scratch.compress_cos.data() + t * pairs,
                     scratch.compress_sin.data() + t * pairs);
  });
}

void Forward::Impl::BeginSite(int l, const char* site, const HyperConnectionWeights& hc,
                              const std::vector<float>& norm) {
  const formats::ModelConfig& config = plan.config;
  const int64_t hidden = config.hidden_size;
  const int64_t m = config.hc_mult;
  const int64_t n_mix = (2 + m) * m;
  const auto eps = static_cast<float>(config.rms_norm_eps);
  const kernels::HyperConnectionParams params{.streams = m,
                                              .sinkhorn_iters = config.hc_sinkhorn_iters,
                                              .eps = static_cast<float>(config.hc_eps),
                                              .base = hc.base.data(),
                                              .scale = hc.scale.data()};
  context.RunMatMuls({context.BatchJob(hc.fn, scratch.streams, scratch.mix)});
  context.ForEachToken([&](int64_t t, WorkerScratch&) {
    const float* x = scratch.streams.data() + t * m * hidden;
    float* mix = scratch.mix.data() + t * n_mix;
    // The projection of the normalised streams is the projection of the streams times the reciprocal rms.
    const float scale = kernels::ReciprocalRms(x, m * hidden, eps);
    for (int64_t i = 0; i < n_mix; ++i) mix[i] *= scale;
    kernels::HyperConnectionMix(params, mix, scratch.new_pre.data() + t * m, scratch.post.data() + t * m,
                                scratch.comb.data() + t * m * m);
    float* u = scratch.site_in.data() + t * hidden;
    kernels::CollapseStreams(x, scratch.pre.data() + t * m, m, hidden, u);
    kernels::RmsNorm(u, norm.data(), hidden, eps, u);
  });
  if (context.trace == nullptr) return;
  const std::string prefix = site;
  context.Trace(l, prefix + "_pre", scratch.new_pre, {batch.n_tokens(), m});
  context.Trace(l, prefix + "_post", scratch.post, {batch.n_tokens(), m});
  context.Trace(l, prefix + "_comb", scratch.comb, {batch.n_tokens(), m, m});
  context.Trace(l, prefix + "_in", scratch.site_in, {batch.n_tokens(), hidden});
}

void Forward::Impl::EndSite(int l, const char* site, const char* streams_name) {
  const int64_t hidden = plan.config.hidden_size;
  const int64_t m = plan.config.hc_mult;
  // Slices of channels, so that one token alone is work for several threads.
  const int64_t slices =
      batch.n_tokens() < 4 * pool.size() ? (hidden + kSliceChannels - 1) / kSliceChannels : 1;
  const int64_t channels = slices == 1 ? hidden : kSliceChannels;
  pool.ParallelFor(static_cast<size_t>(batch.n_tokens() * slices), [&](size_t task, int) {
    const int64_t t = static_cast<int64_t>(task) / slices;
    const int64_t begin = static_cast<int64_t>(task) % slices * channels;
    kernels::ExpandStreams(scratch.site_out.data() + t * hidden, scratch.post.data() + t * m,
                           scratch.comb.data() + t * m * m, m, hidden, begin,
                           std::min(begin + channels, hidden), scratch.streams.data() + t * m * hidden);
  });
  std::swap(scratch.pre, scratch.new_pre);
  if (context.trace == nullptr) return;
  context.Trace(l, std::string(site) + "_out", scratch.site_out, {batch.n_tokens(), hidden});
  context.Trace(l, streams_name, scratch.streams, {batch.n_tokens(), m, hidden});
}

void Forward::Impl::RunLayer(int l) {
  const LayerWeights& layer = weights.layer(static_cast<size_t>(l));
  if (context.trace != nullptr) {
    const auto m = static_cast<size_t>(plan.config.hc_mult);
    const auto n_tokens = static_cast<size_t>(batch.n_tokens());
    context.trace->OnLayerInput(
        l, scratch.streams.first(n_tokens * m * static_cast<size_t>(plan.config.hidden_size)),
        scratch.pre.first(n_tokens * m));
  }
  if (plan.layers[static_cast<size_t>(l)].engram) WriteEngram(context, l);
  batch.BeginLayer(l);
  BeginSite(l, "attn", layer.hc_attn, layer.attn_norm);
  RunAttention(context, l);
  if (batch.n_tokens() == 0) return;  // all that is left of them is what the layer has stored
  EndSite(l, "attn", "streams_attn");
  BeginSite(l, "ffn", layer.hc_ffn, layer.ffn_norm);
  RunMoe(context, l);
  EndSite(l, "ffn", "streams");
}

void Forward::Impl::Logits(std::span<const BatchItem> items, std::span<float> logits) {
  const int64_t hidden = plan.config.hidden_size;
  const int64_t m = plan.config.hc_mult;
  const auto eps = static_cast<float>(plan.config.rms_norm_eps);
  int64_t n = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].logits == LogitsWanted::kNone) continue;
    const BatchLayout::Item& item = batch.items()[i];
    const int64_t first = items[i].logits == LogitsWanted::kAll ? 0 : item.n_tokens - 1;
    for (int64_t t = item.first_token + first; t < item.first_token + item.n_tokens; ++t, ++n) {
      float* h = scratch.site_in.data() + n * hidden;
      kernels::CollapseStreams(scratch.streams.data() + t * m * hidden, scratch.pre.data() + t * m, m, hidden,
                               h);
      kernels::RmsNorm(h, weights.norm().data(), hidden, eps, h);
    }
  }
  MILLRACE_CHECK(logits.size() >= static_cast<size_t>(n * plan.config.vocab_size), "logits buffer too small");
  MatMulJob job = context.BatchJob(weights.head(), scratch.site_in, logits);
  job.n_tokens = n;
  if (n > 0) context.RunMatMuls({job});
  if (context.trace != nullptr) {
    const int64_t shape[] = {n, hidden};
    context.trace->OnTensor("final_norm", scratch.site_in.first(static_cast<size_t>(n * hidden)), shape);
  }
}

Forward::Forward(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Forward::~Forward() = default;

Result<std::unique_ptr<Forward>> Forward::Create(const Checkpoint& checkpoint, EngramHash engram,
                                                 ThreadPool& pool, ForwardOptions options,
                                                 MemoryLedger* ledger) {
  MILLRACE_ASSIGN_OR_RETURN(LayerPlan plan, LayerPlan::Build(checkpoint.config()));
  if (options.max_batch_tokens < 1 || options.max_batch_items < 1) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a batch of {} tokens and {} items is empty; both must be at least 1",
                             options.max_batch_tokens, options.max_batch_items));
  }
  if (engram.n_layers() != static_cast<int>(plan.engram_layers.size())) {
    return Error(ErrorCode::kMismatch, fmt::format("hash tables for {} engram layers, the model has {}",
                                                   engram.n_layers(), plan.engram_layers.size()));
  }
  if (!std::has_single_bit(static_cast<uint64_t>(options.page_tokens)) ||
      options.page_tokens < kMinPageTokens) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("pages of {} tokens; a power of two of at least {} is needed",
                             options.page_tokens, kMinPageTokens));
  }
  options.max_batch_items = std::min(options.max_batch_items, options.max_batch_tokens);
  try {
    return std::unique_ptr<Forward>(new Forward(
        std::make_unique<Impl>(checkpoint, std::move(plan), std::move(engram), pool, options, ledger)));
  } catch (const std::bad_alloc&) {
    return Error(
        ErrorCode::kResourceExhausted,
        fmt::format("no memory for the forward pass's scratch of {} tokens a batch; choose a smaller batch",
                    options.max_batch_tokens));
  }
}

std::vector<PlannedMemory> Forward::PlanScratch(const LayerPlan& plan, const ForwardOptions& options,
                                                int n_threads) {
  Arena arena;
  const ForwardScratch measured(plan, options, n_threads, arena);
  std::vector<PlannedMemory> lines = arena.parts();
  lines.push_back({"scratch, batch layout", BatchLayout::BytesFor(options), "max-num-batched-tokens"});
  return lines;
}

const LayerPlan& Forward::plan() const {
  return impl_->plan;
}
const PageLayout& Forward::page_layout() const {
  return impl_->pages;
}
const ForwardOptions& Forward::options() const {
  return impl_->options;
}

void Forward::Resume(SequenceState& state, std::span<const TokenId> tokens, int64_t length,
                     int64_t results_from, std::span<const std::byte> tail) const {
  // Without rings every layer's input grows exact a reach later than that of the layer below it.
  const int64_t replayed = static_cast<int64_t>(plan().layers.size()) * (plan().config.sliding_window - 1);
  const int64_t exact_from = tail.empty() && length > 0 ? length + replayed : length;
  state.Restore(length, static_cast<int64_t>(tokens.size()), results_from, exact_from, tail);
  const auto history = static_cast<int64_t>(state.ngram_history.size());
  for (int64_t i = 0; i < history; ++i) {
    const int64_t position = length - history + i;
    state.ngram_history[static_cast<size_t>(i)] =
        position < 0 ? kDeadClass : impl_->engram.ClassOf(tokens[static_cast<size_t>(position)]);
  }
}

void Forward::Run(std::span<const BatchItem> items, std::span<float> logits, LayerTrace* trace) {
  Impl& impl = *impl_;
  impl.batch.Assign(items);
  impl.context.trace = trace;
  impl.Embed();
  HashNgrams(impl.context);
  const auto n_layers = static_cast<int>(impl.plan.layers.size());
  for (int l = 0; l < n_layers && impl.batch.n_tokens() > 0; ++l) impl.RunLayer(l);
  impl.Logits(items, logits);
  for (const BatchLayout::Item& item : impl.batch.items()) {
    const bool left_out = item.results_from > item.state->length();
    item.state->AdvanceTo(item.start + item.n_tokens,
                          left_out ? item.results_from : item.state->results_from());
  }
  impl.context.trace = nullptr;
}

}  // namespace millrace::model
