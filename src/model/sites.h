#pragma once

#include "model/forward_context.h"

// The parts of one layer, in the order the forward pass runs them. Each reads and writes the context's
// scratch for all tokens of the batch; sections are those of shared/spec/v41-text.md.
namespace millrace::model {

// 5.2: hashes the batch's n-grams into scratch.row_ids for every engram layer, and moves the sequences'
// histories on. Before the first layer.
void HashNgrams(const ForwardContext& context);
// 5.2: adds the gated n-gram memory to the streams.
void WriteEngram(const ForwardContext& context, int l);

// 5.3: site_in -> site_out, through compressor (5.4) and indexer (5.5) where the layer has them.
void RunAttention(const ForwardContext& context, int l);
// 5.4: completes the entries whose last token is in the batch; stores them in the pages.
void CompressEntries(const ForwardContext& context, int l);
// 5.5: chooses every token's compressed entries, on the candidate source its candidate blocks too.
void SelectEntries(const ForwardContext& context, int l);

// 5.6: site_in -> site_out.
void RunMoe(const ForwardContext& context, int l);

}  // namespace millrace::model
