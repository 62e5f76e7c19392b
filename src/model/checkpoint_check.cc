#include "model/checkpoint_check.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/thread_pool.h"
#include "base/units.h"

namespace millrace::model {
namespace {

using formats::TensorInfo;

constexpr uint8_t kNanScale = 255;
// An expert's scales are 368,640 bytes a matrix: some 50 MB on their way from the drive at a time.
constexpr size_t kTensorsReadAhead = 128;
constexpr uint64_t kScanBytesPerThread = 64 * kMiB;
constexpr uint64_t kMaxScanThreads = 16;

std::string TypeAndShape(formats::DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} {}", formats::DTypeName(dtype), formats::ShapeString(shape));
}

// The part of the model whose tensors are called so; nothing for a top-level family that V4.1 does not have.
std::optional<Component> ComponentOfName(std::string_view name) {
  const std::string_view family = name.substr(0, name.find('.'));
  if (family == "mtp") return Component::kDraft;
  for (const std::string_view vision : {"vision", "aligner", "image_start", "image_end", "image_newline"})
    if (family == vision) return Component::kVision;
  for (const std::string_view text : {"layers", "embed", "head", "norm"})
    if (family == text) return Component::kBackbone;
  return std::nullopt;
}

// Names that only DeepSeek-V4 checkpoints have.
bool IsV4Name(std::string_view name) {
  return name.find("hc_head_") != name.npos || name.find("tid2eid") != name.npos ||
         name.find("markov_w") != name.npos || name.ends_with(".ape");
}

class Comparison {
 public:
  Comparison(std::span<const TensorSpec> catalogue, const CheckpointIndex& index,
             std::span<const Shard> shards)
      : catalogue_(catalogue), index_(index), shards_(shards) {
    specs_.reserve(catalogue_.size());
    places_.reserve(catalogue_.size());
    index_shard_.reserve(index_.weight_map.size());
    for (const TensorSpec& spec : catalogue_) {
      specs_.emplace(spec.name, &spec);
      has_component_[static_cast<size_t>(spec.component)] = true;
    }
    for (const auto& [tensor, shard] : index_.weight_map) index_shard_.emplace(tensor, shard);
  }

  CheckOutcome Run() && {
    outcome_.matches.reserve(catalogue_.size());
    for (const Shard& shard : shards_) shard.file.ok() ? AddShard(shard) : ReportUnreadable(shard);
    CheckTotalSize();
    for (const TensorSpec& spec : catalogue_) CheckSpec(spec);
    CheckUnlisted();
    return std::move(outcome_);
  }

 private:
  struct Place {
    const Shard* shard;
    const TensorInfo* info;
  };

  void Report(Component component, std::string_view file, std::string_view tensor, std::string found,
              std::string expected) {
    outcome_.disagreements.push_back(
        {component, std::string(file), std::string(tensor), std::move(found), std::move(expected)});
  }

  // A tensor that the catalogue does not know and whose name tells nothing could be anything: it counts
  // against the text model.
  Component Blame(std::string_view tensor) const {
    const auto spec = specs_.find(tensor);
    if (spec != specs_.end()) return spec->second->component;
    return ComponentOfName(tensor).value_or(Component::kBackbone);
  }

  // A damaged file is never harmless, whatever it holds; an absent one leaves a gap in the parts it should
  // hold.
  void ReportUnreadable(const Shard& shard) {
    std::array<Tally, kComponents> lost{};
    for (const auto& [tensor, file] : index_.weight_map) {
      if (file != shard.name) continue;
      const auto spec = specs_.find(tensor);
      const uint64_t bytes = spec == specs_.end() ? 0 : spec->second->bytes();
      lost[static_cast<size_t>(Blame(tensor))].Add(bytes);
    }
    any_unreadable_ = true;
    const Error& error = shard.file.error();
    if (error.code() != ErrorCode::kNotFound) {
      Tally all;
      for (const Tally& part : lost) all.tensors += part.tensors, all.bytes += part.bytes;
      Report(Component::kBackbone, shard.name, "", error.message(), ShardContent(all));
      return;
    }
    for (size_t c = 0; c < lost.size(); ++c)
      if (lost[c].tensors > 0)
        Report(static_cast<Component>(c), shard.name, "", "no such file", ShardContent(lost[c]));
  }

  static std::string ShardContent(const Tally& tally) {
    return fmt::format("a safetensors file with {} tensors of {} bytes", WithThousands(tally.tensors),
                       WithThousands(tally.bytes));
  }

  void AddShard(const Shard& shard) {
    for (const TensorInfo& info : shard.file.value().tensors()) {
      const auto spec = specs_.find(info.name);
      const uint64_t bytes = info.end - info.begin;
      if (spec == specs_.end()) {
        outcome_.found.AddUnlisted(info.dtype, bytes);
      } else {
        outcome_.found.Add(spec->second->category, info.dtype, bytes);
      }
      const auto [at, first] = places_.emplace(info.name, Place{&shard, &info});
      if (first) continue;
      Report(Component::kBackbone, shard.name, info.name,
             fmt::format("a second copy, the first is in {}", at->second.shard->name),
             "one copy of each tensor");
      const auto named = index_shard_.find(info.name);
      if (named != index_shard_.end() && named->second == shard.name) at->second = Place{&shard, &info};
    }
  }

  // total_size is wrong for a checkpoint whose draft or vision tensors were cut out without touching it; that
  // is no damage to the text model.
  void CheckTotalSize() {
    const uint64_t bytes = outcome_.found.total.bytes;
    if (any_unreadable_ || index_.total_size == bytes) return;
    std::array<uint64_t, kComponents> missing{};
    for (const TensorSpec& spec : catalogue_)
      if (!places_.contains(spec.name)) missing[static_cast<size_t>(spec.component)] += spec.bytes();
    Component component = Component::kBackbone;
    for (const Component part : {Component::kDraft, Component::kVision})
      if (bytes + missing[static_cast<size_t>(part)] == index_.total_size) component = part;
    Report(component, kIndexFileName, "",
           fmt::format("metadata.total_size {}", WithThousands(index_.total_size)),
           fmt::format("{}, the bytes of the {} tensors in the shards", WithThousands(bytes),
                       WithThousands(outcome_.found.total.tensors)));
  }

  void CheckSpec(const TensorSpec& spec) {
    const auto named = index_shard_.find(spec.name);
    const auto place = places_.find(spec.name);
    const auto expected = [&] { return TypeAndShape(spec.dtype, spec.shape); };
    if (place == places_.end()) {
      if (named == index_shard_.end()) {
        Report(spec.component, kIndexFileName, spec.name, "no such tensor", expected());
      } else if (IsReadable(named->second)) {
        Report(spec.component, named->second, spec.name, "no such tensor in the shard that the index names",
               expected());
      }
      return;
    }
    const auto& [shard, info] = place->second;
    CheckPlace(spec.name, *shard);
    const Match& match = outcome_.matches.emplace_back(&spec, shard, info);
    if (!match.AsExpected())
      Report(spec.component, shard->name, spec.name, TypeAndShape(info->dtype, info->shape), expected());
  }

  // The index and the shards agree on where a tensor lies.
  void CheckPlace(std::string_view tensor, const Shard& shard) {
    const auto named = index_shard_.find(tensor);
    if (named == index_shard_.end()) {
      Report(Blame(tensor), shard.name, tensor, "a tensor that the index leaves out",
             fmt::format("an entry of weight_map in {}", kIndexFileName));
    } else if (named->second != shard.name) {
      Report(Blame(tensor), shard.name, tensor, "the tensor",
             fmt::format("it in {}, where the index says", named->second));
    }
  }

  void CheckUnlisted() {
    for (const Shard& shard : shards_) {
      if (!shard.file.ok()) continue;
      for (const TensorInfo& info : shard.file.value().tensors()) {
        if (specs_.contains(info.name)) continue;
        Report(Blame(info.name), shard.name, info.name, TypeAndShape(info.dtype, info.shape),
               WhyUnlisted(info.name));
      }
    }
    for (const auto& [tensor, shard] : index_.weight_map)
      if (!specs_.contains(tensor) && !places_.contains(tensor) && IsReadable(shard))
        Report(Blame(tensor), kIndexFileName, tensor, fmt::format("an entry for {}", shard),
               WhyUnlisted(tensor));
  }

  std::string WhyUnlisted(std::string_view name) const {
    if (IsV4Name(name))
      return "no such tensor: it belongs to DeepSeek-V4, the wrong checkpoint family for this config.json";
    const auto component = ComponentOfName(name);
    if (!component)
      return "no such tensor: the families are embed, head, norm, layers, mtp, vision, aligner and image_*";
    if (*component == Component::kDraft && !has_component_[static_cast<size_t>(*component)])
      return "no draft tensors: config.json has num_nextn_predict_layers 0";
    if (*component == Component::kVision && !has_component_[static_cast<size_t>(*component)])
      return "no vision tensors: config.json has no vision_config";
    return "no such tensor: config.json does not call for it";
  }

  bool IsReadable(std::string_view shard_name) const {
    const auto shard = std::find_if(shards_.begin(), shards_.end(),
                                    [&](const Shard& candidate) { return candidate.name == shard_name; });
    return shard != shards_.end() && shard->file.ok();
  }

  std::span<const TensorSpec> catalogue_;
  const CheckpointIndex& index_;
  std::span<const Shard> shards_;
  std::unordered_map<std::string_view, const TensorSpec*> specs_;
  std::unordered_map<std::string_view, std::string_view> index_shard_;
  std::unordered_map<std::string_view, Place> places_;
  std::array<bool, kComponents> has_component_{};
  bool any_unreadable_ = false;
  CheckOutcome outcome_;
};

bool IsCovered(const Match& match, ScaleScan scan) {
  const TensorSpec& spec = *match.spec;
  if (!spec.is_scale || !match.AsExpected()) return false;
  if (spec.kind == TensorKind::kEngramEmbed) return scan == ScaleScan::kAll;
  if (spec.expert) return scan >= ScaleScan::kExceptTables;
  return true;
}

// Asks the system for the pages of `bytes` at once and for no others. Left to page faults it reads around
// each one, on machines set up for streaming a thousand times what the dense scales have.
void ReadAhead(std::span<const std::byte> bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  // Only advice: when it is refused, the pages come as they are touched.
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

std::optional<Disagreement> NanScaleIn(const Match& match) {
  const std::span<const std::byte> bytes = match.Bytes();
  const void* at = std::memchr(bytes.data(), kNanScale, bytes.size());
  if (at == nullptr) return std::nullopt;
  const int64_t cols = match.spec->shape[1];
  const int64_t first = static_cast<const std::byte*>(at) - bytes.data();
  const auto count = std::count(bytes.begin(), bytes.end(), std::byte{kNanScale});
  return Disagreement{match.spec->component, match.shard->name, match.spec->name,
                      fmt::format("scale byte 255 (NaN) at row {}, column {}, {} in all", first / cols,
                                  first % cols, WithThousands(static_cast<uint64_t>(count))),
                      "scale bytes 0 to 254"};
}

// One for a small checkpoint: starting threads takes longer than reading megabytes.
int ScanThreads(uint64_t bytes) {
  const uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  return static_cast<int>(
      std::clamp<uint64_t>(bytes / kScanBytesPerThread, 1, std::min(cores, kMaxScanThreads)));
}

}  // namespace

CheckOutcome CompareWithCatalogue(std::span<const TensorSpec> catalogue, const CheckpointIndex& index,
                                  std::span<const Shard> shards) {
  return Comparison(catalogue, index, shards).Run();
}

std::vector<Disagreement> FindNanScales(std::span<const Match> matches, ScaleScan scan) {
  std::vector<const Match*> covered;
  uint64_t bytes = 0;
  for (const Match& match : matches) {
    if (!IsCovered(match, scan)) continue;
    covered.push_back(&match);
    bytes += match.spec->bytes();
  }
  for (size_t i = 0; i < std::min(covered.size(), kTensorsReadAhead); ++i) ReadAhead(covered[i]->Bytes());
  ThreadPool pool(ScanThreads(bytes));
  std::vector<std::optional<Disagreement>> found(covered.size());
  pool.ParallelFor(covered.size(), [&](size_t i, int) {
    if (i + kTensorsReadAhead < covered.size()) ReadAhead(covered[i + kTensorsReadAhead]->Bytes());
    found[i] = NanScaleIn(*covered[i]);
  });
  std::vector<Disagreement> disagreements;
  for (std::optional<Disagreement>& disagreement : found)
    if (disagreement) disagreements.push_back(std::move(*disagreement));
  return disagreements;
}

}  // namespace millrace::model
