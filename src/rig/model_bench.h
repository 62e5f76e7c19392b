#pragma once

#include <cstdint>
#include <filesystem>

#include "base/function_ref.h"
#include "base/result.h"
#include "model/checkpoint.h"
#include "model/forward.h"
#include "rig/bench_row.h"
#include "rig/kernel_cases.h"

namespace millrace::rig {

struct ModelBenchOptions {
  int64_t prefill_tokens = 512;  // of the prompt that is read
  int64_t decode_tokens = 32;    // that are timed
  int64_t depth = 512;           // tokens in the sequence when they are
  int busy_neighbours = 0;       // processes that spin beside it in the last rows; 0: no such rows
  model::ForwardOptions forward = {};
};

// What is compared with a greater depth.
inline constexpr int64_t kShortDepth = 512;

// The whole forward pass with a checkpoint's weights, which are touched before anything is timed:
//   prefill         a prompt of random tokens, in batches of forward.max_batch_tokens; operations
//   (CountPrefill)
//                   over the multiply-add peak
//   decode          single tokens at a short depth and at `depth`; weight bytes (DecodeBytes) over read
//   bandwidth decode-depth    decode at `depth` over decode at the short depth prefill-decode  tokens a
//   second of the prefill over those of decode late-layers     a batch in the middle of a long prompt, over
//   the same with late layers run for all tokens
//   busy-decode, busy-prefill  the same beside processes that spin, over what the machine would give at best:
//                   the rate alone times the share of the processors that as many equal threads get
//
// Nobody reads 32,768 tokens to measure 32: a depth is made of one read prompt whose pages are repeated.
// First a chunk is compared with its tokens alone, bit for bit (kMismatch).
//
// Each row goes to `on_row` when it is measured. kInvalidArgument for options that do not fit the checkpoint.
Status BenchModel(const model::Checkpoint& checkpoint, KernelBench& bench, const ModelBenchOptions& options,
                  FunctionRef<void(const BenchRow&)> on_row);

// Opening a checkpoint and touching all its weights, over reading its files once from start to end; both
// after asking the kernel to forget the files, which it does only while nobody else maps them.
Result<BenchRow> BenchLoad(const std::filesystem::path& dir, KernelBench& bench);

}  // namespace millrace::rig
