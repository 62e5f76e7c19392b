#include "model/synthetic_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "base/units.h"
#include "model/checkpoint_index.h"
#include "model/engram_hash.h"
#include "model/engram_primes.h"
#include "model/synthetic_tokenizer.h"
#include "model/synthetic_weights.h"

namespace millrace::model {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHeaderBytesPerTensor = 200;  // an upper bound, to check for room on the disk

// One file of the checkpoint and its tensors in the order they are stored.
struct PlannedShard {
  std::string name;
  std::vector<const TensorSpec*> tensors;
};

// The released assignment. Inside a file wide elements come first, so that every tensor is aligned to its
// type.
std::vector<PlannedShard> PlanShards(const std::vector<TensorSpec>& catalogue) {
  std::vector<PlannedShard> shards(static_cast<size_t>(catalogue.back().shard));
  for (const TensorSpec& spec : catalogue)
    shards[static_cast<size_t>(spec.shard - 1)].tensors.push_back(&spec);
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = ShardFileName(i + 1, shards.size());
    std::stable_sort(shards[i].tensors.begin(), shards[i].tensors.end(),
                     [](const TensorSpec* a, const TensorSpec* b) {
                       return formats::DTypeBytes(a->dtype) > formats::DTypeBytes(b->dtype);
                     });
  }
  return shards;
}

Status WriteShard(const fs::path& path, const PlannedShard& shard, const WeightSource& weights) {
  std::vector<formats::TensorInfo> infos;
  for (const TensorSpec* spec : shard.tensors)
    infos.push_back({.name = spec->name, .dtype = spec->dtype, .shape = spec->shape});
  MILLRACE_ASSIGN_OR_RETURN(formats::SafetensorsWriter writer,
                            formats::SafetensorsWriter::Create(path, std::move(infos), {{"format", "pt"}}));
  std::vector<std::byte> buffer(WeightSource::kBlockElements * sizeof(float));
  for (const TensorSpec* spec : shard.tensors) {
    for (uint64_t block = 0; block < WeightSource::BlockCount(*spec); ++block) {
      weights.FillBlock(*spec, block, buffer);
      MILLRACE_RETURN_IF_ERROR(
          writer.Append(std::span(buffer).first(WeightSource::BlockBytes(*spec, block))));
    }
  }
  return writer.Finish();
}

Status WriteTextFile(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out)
    return Error(ErrorCode::kIo, fmt::format("{}: cannot write {} bytes", path.string(), text.size()));
  return {};
}

// The directory, its claim to hold the files written so far, and their removal if the work is not completed.
class OutputDirectory {
 public:
  static Result<OutputDirectory> Prepare(const fs::path& dir, bool overwrite, uint64_t bytes) {
    std::error_code error;
    if (fs::exists(dir, error) && !fs::is_directory(dir, error))
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: a file; expected a directory to write a checkpoint into", dir.string()));
    fs::create_directories(dir, error);
    if (error) return Error(ErrorCode::kIo, fmt::format("{}: {}", dir.string(), error.message()));
    OutputDirectory output(dir);
    MILLRACE_RETURN_IF_ERROR(output.Clear(overwrite));
    const fs::space_info space = fs::space(dir, error);
    if (!error && space.available < bytes)
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("{}: {} are free, the checkpoint needs {}", dir.string(),
                               HumanBytes(space.available), HumanBytes(bytes)));
    return output;
  }

  OutputDirectory(OutputDirectory&&) noexcept = default;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory() {
    std::error_code ignored;
    for (const std::string& name : files_) fs::remove(dir_ / name, ignored);
  }

  // The path of a file that is about to be written.
  fs::path Claim(const std::string& name) {
    files_.push_back(name);
    return dir_ / name;
  }

  // Keeps the files from here on.
  std::vector<std::string> Complete() { return std::exchange(files_, {}); }

 private:
  explicit OutputDirectory(fs::path dir) : dir_(std::move(dir)) {}

  // An old checkpoint goes, index first, so that old and new shards are never taken for one.
  Status Clear(bool overwrite) {
    std::error_code error;
    std::vector<fs::path> old;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir_, error)) {
      const std::string name = entry.path().filename().string();
      if (!overwrite)
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("{} is not empty (it holds {}); name another directory or give --force to "
                                 "replace the checkpoint in it",
                                 dir_.string(), name));
      if (IsShardFileName(name)) old.push_back(entry.path());
    }
    if (error) return Error(ErrorCode::kIo, fmt::format("{}: {}", dir_.string(), error.message()));
    old.insert(old.begin(), dir_ / kIndexFileName);
    for (const fs::path& path : old) {
      fs::remove(path, error);
      if (error) return Error(ErrorCode::kIo, fmt::format("{}: {}", path.string(), error.message()));
    }
    return {};
  }

  fs::path dir_;
  std::vector<std::string> files_;
};

}  // namespace

Result<SyntheticModel> MakeSyntheticModel(SyntheticPreset preset) {
  SyntheticModel model;
  formats::ModelConfig& config = model.config;
  config = PresetConfig(preset);
  model.tokenizer = MakeSyntheticTokenizer(config.vocab_size);
  if (config.vision_config) config.image_token_id = ControlTokenId(model.tokenizer, "<｜deepseek_image｜>");
  if (config.num_nextn_predict_layers > 0)
    config.dspark_noise_token_id = ControlTokenId(model.tokenizer, "<｜place▁holder▁no▁0｜>");
  for (const EngramBuckets& buckets : ComputeEngramBuckets(config))
    config.engram_num_embeddings.push_back(buckets.rows);
  MILLRACE_ASSIGN_OR_RETURN(const TokenClasses classes,
                            ComputeTokenClasses(model.tokenizer, config.vocab_size));
  config.engram_compressed_vocab_size = classes.n_classes;
  return model;
}

Result<SyntheticSummary> WriteSyntheticCheckpoint(const SyntheticOptions& options, ThreadPool& pool) {
  MILLRACE_ASSIGN_OR_RETURN(const SyntheticModel model, MakeSyntheticModel(options.preset));
  const std::vector<TensorSpec> catalogue = BuildCatalogue(model.config);
  const std::vector<PlannedShard> shards = PlanShards(catalogue);
  SyntheticSummary summary;
  summary.config = model.config;
  summary.inventory = CountCatalogue(catalogue);
  const Tally& total = summary.inventory.total;
  MILLRACE_ASSIGN_OR_RETURN(OutputDirectory output,
                            OutputDirectory::Prepare(options.dir, options.overwrite,
                                                     total.bytes + total.tensors * kHeaderBytesPerTensor));

  MILLRACE_RETURN_IF_ERROR(WriteTextFile(output.Claim("config.json"), formats::WriteHfConfig(model.config)));
  MILLRACE_RETURN_IF_ERROR(
      WriteTextFile(output.Claim("tokenizer.json"), formats::WriteTokenizerJson(model.tokenizer)));

  const WeightSource weights(options.seed);
  std::vector<fs::path> paths;
  for (const PlannedShard& shard : shards) paths.push_back(output.Claim(shard.name));
  std::vector<Status> written(shards.size());
  pool.ParallelFor(shards.size(),
                   [&](size_t i, int) { written[i] = WriteShard(paths[i], shards[i], weights); });
  for (const Status& status : written) MILLRACE_RETURN_IF_ERROR(status);

  CheckpointIndex index{.weight_map = {}, .total_size = total.bytes};
  for (const PlannedShard& shard : shards)
    for (const TensorSpec* spec : shard.tensors) index.weight_map.emplace_back(spec->name, shard.name);
  MILLRACE_RETURN_IF_ERROR(
      WriteTextFile(output.Claim(std::string(kIndexFileName)), WriteCheckpointIndex(index)));

  summary.files = output.Complete();
  for (const std::string& name : summary.files) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(options.dir / name, error);
    if (!error) summary.file_bytes += bytes;
  }
  return summary;
}

}  // namespace millrace::model
