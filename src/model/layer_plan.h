#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "formats/hf_config.h"

namespace millrace::model {

// What one layer does (shared/spec/v41-text.md, section 2, "derived layer roles").
struct LayerRole {
  int64_t ratio = 0;                  // compress ratio; 0: window only
  std::optional<int> kv_source;       // index into LayerPlan::kv_sources of the entries it attends to
  bool owns_kv = false;               // has the compressor and index keys
  bool owns_index = false;            // has an indexer: selects afresh; else reuses the latest selection
  bool publishes_candidates = false;  // the candidate source
  bool uses_candidates = false;       // re-index layer after the candidate source
  std::optional<int> engram;          // index into LayerPlan::engram_layers
};

// The config, checked for consistency, and what follows from it. Read-only after Build.
struct LayerPlan {
  // Refuses configs the forward pass cannot run, naming key, value and rule: dimensions that are not
  // multiples of the quantiser blocks, a consumer whose ratio differs from its source's, a candidate source
  // and re-index layer without a common KV source, ...
  static Result<LayerPlan> Build(const formats::ModelConfig& config);

  // The first of the late layers, which hand nothing to positions more than a window away: the last KV
  // source, behind its compressor. 0 when there is no source.
  int first_late_layer() const { return kv_sources.empty() ? 0 : kv_sources.back(); }
  // The first position that layer `l` is evaluated at so that results (the streams behind the last layer) are
  // exact from position `results_from` on: a window's reach further back with every layer below the last. 0
  // before first_late_layer. A late layer needs window entries of sliding_window - 1 positions more, which is
  // FirstEvaluated(l - 1) (shared/spec/v41-text.md, section 9.5).
  int64_t FirstEvaluated(int l, int64_t results_from) const;

  // Where a sequence may begin again whose first `shared_tokens` (> 0) have their global entries in place,
  // but whose window rings are lost, so that its results are exact from `results_from` (>= shared_tokens) on
  // and the entries behind `shared_tokens` are, too. What is computed before grows exact layer by layer, a
  // window's reach each: at most layers x (sliding_window - 1) tokens are read again. Even; 0: from the
  // start.
  int64_t ReplayStart(int64_t shared_tokens, int64_t results_from) const;
  // Whether rings that were kept at `length` inside a prompt, of which only those up to first_late_layer are
  // exact, suffice to go on from there for results from `results_from` on.
  bool EarlyRingsSuffice(int64_t length, int64_t results_from) const {
    return FirstEvaluated(first_late_layer(), results_from) >= length;
  }

  formats::ModelConfig config;
  std::vector<LayerRole> layers;
  std::vector<int> kv_sources;     // layer ids, ascending
  std::vector<int> engram_layers;  // layer ids, ascending
};

}  // namespace millrace::model
