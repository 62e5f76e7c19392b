#include "model/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "model/checkpoint_check.h"
#include "model/checkpoint_index.h"

namespace millrace::model {
namespace {

namespace fs = std::filesystem;

// Lines of disagreements in an error message; `millrace inspect` prints all.
constexpr size_t kMaxErrorLines = 100;

// The catalogue's identity of one tensor in one word.
uint64_t TensorKey(TensorKind kind, bool scale, Component component, int layer, int expert) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(scale) << 55 |
         static_cast<uint64_t>(component) << 52 | static_cast<uint64_t>(layer) << 32 |
         static_cast<uint64_t>(expert);
}

std::string EscapeControls(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

// The shards that the index names and those that lie beside it under a shard's name, in order of name. Other
// safetensors files of the directory are nobody's business.
std::vector<Shard> OpenShards(const fs::path& dir, const CheckpointIndex& index) {
  std::set<std::string> names;
  for (const auto& [tensor, shard] : index.weight_map) names.insert(shard);
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (IsShardFileName(name)) names.insert(name);
  }
  std::vector<Shard> shards;
  shards.reserve(names.size());
  for (const std::string& name : names) shards.push_back({name, formats::SafetensorsFile::Open(dir / name)});
  return shards;
}

}  // namespace

std::string Disagreement::Text() const {
  std::string out;
  for (const std::string* part : {&file, &tensor})
    if (!part->empty()) out += EscapeControls(*part) + ": ";
  return out + fmt::format("found {}, expected {}", EscapeControls(found), EscapeControls(expected));
}

bool CheckpointReport::ComponentComplete(Component component) const {
  if (component == Component::kDraft && config.num_nextn_predict_layers == 0) return false;
  if (component == Component::kVision && !config.vision_config) return false;
  return std::none_of(disagreements.begin(), disagreements.end(),
                      [&](const Disagreement& d) { return d.component == component; });
}

std::string CheckpointReport::ListOf(Component component, size_t max_lines) const {
  // Faults of a whole file (it lies in another's place, say) repeat one line for each of its tensors.
  using Likeness = std::tuple<std::string_view, std::string_view, std::string_view>;
  std::map<Likeness, size_t> line_of;
  std::vector<std::pair<const Disagreement*, size_t>> lines;  // with the number of tensors
  for (const Disagreement& d : disagreements) {
    if (d.component != component) continue;
    const auto [at, first] = line_of.emplace(Likeness(d.file, d.found, d.expected), lines.size());
    if (first) lines.emplace_back(&d, 0);
    ++lines[at->second].second;
  }
  std::string out;
  for (size_t i = 0; i < std::min(lines.size(), max_lines); ++i) {
    const auto& [disagreement, tensors] = lines[i];
    out += (i > 0 ? "\n" : "") + disagreement->Text();
    if (tensors > 1) out += fmt::format(" (and {} more tensors likewise)", WithThousands(tensors - 1));
  }
  if (lines.size() > max_lines)
    out +=
        fmt::format("\nand {} more; `millrace inspect` lists all", WithThousands(lines.size() - max_lines));
  return out;
}

struct Checkpoint::Impl {
  fs::path dir;
  CheckpointReport report;
  std::vector<Shard> shards;
  std::vector<TensorSpec> catalogue;
  std::unordered_map<uint64_t, StoredTensor> tensors;
};

Result<std::unique_ptr<Checkpoint::Impl>> Checkpoint::Load(const fs::path& dir, ScaleScan scan) {
  auto impl = std::make_unique<Impl>();
  impl->dir = dir;
  MILLRACE_ASSIGN_OR_RETURN(impl->report.config, ReadConfig(dir));
  MILLRACE_ASSIGN_OR_RETURN(const CheckpointIndex index, ReadCheckpointIndex(dir));
  impl->catalogue = BuildCatalogue(impl->report.config);
  impl->shards = OpenShards(dir, index);

  CheckOutcome outcome = CompareWithCatalogue(impl->catalogue, index, impl->shards);
  std::vector<Disagreement> nans = FindNanScales(outcome.matches, scan);
  CheckpointReport& report = impl->report;
  report.disagreements = std::move(outcome.disagreements);
  std::move(nans.begin(), nans.end(), std::back_inserter(report.disagreements));
  report.found = std::move(outcome.found);
  const Inventory wanted = CountCatalogue(impl->catalogue);
  report.config_tensors = wanted.total.tensors;
  report.config_bytes = wanted.total.bytes;

  impl->tensors.reserve(outcome.matches.size());
  for (const Match& match : outcome.matches) {
    if (!match.AsExpected()) continue;
    const TensorSpec& spec = *match.spec;
    const uint64_t key =
        TensorKey(spec.kind, spec.is_scale, spec.component, spec.layer.value_or(0), spec.expert.value_or(0));
    impl->tensors.emplace(key, StoredTensor{spec.dtype, spec.shape, match.Bytes()});
  }
  return impl;
}

Result<formats::ModelConfig> Checkpoint::ReadConfig(const fs::path& dir) {
  std::error_code error;
  if (!fs::exists(dir, error) && !error) {
    return Error(ErrorCode::kNotFound,
                 fmt::format("{} does not exist; expected a checkpoint directory", dir.string()));
  }
  if (!fs::is_directory(dir, error))
    return Error(ErrorCode::kNotFound,
                 fmt::format("{}: not a directory; expected a checkpoint directory with "
                             "config.json, {} and shards",
                             dir.string(), kIndexFileName));
  for (const fs::path& path : {dir / "config.json", dir / "inference" / "config.json"})
    if (fs::exists(path, error)) return formats::ReadHfConfig(path);
  return Error(ErrorCode::kNotFound,
               fmt::format("{}: neither config.json nor inference/config.json", dir.string()));
}

Result<CheckpointReport> Checkpoint::Inspect(const fs::path& dir, ScaleScan scan) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Impl> impl, Load(dir, scan));
  return std::move(impl->report);
}

Result<Checkpoint> Checkpoint::Open(const fs::path& dir, ScaleScan scan) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, Load(dir, scan));
  if (!impl->report.ComponentComplete(Component::kBackbone))
    return Error(ErrorCode::kMismatch,
                 fmt::format("{}: the files do not hold the model that config.json describes:\n{}",
                             dir.string(), impl->report.ListOf(Component::kBackbone, kMaxErrorLines)));
  return Checkpoint(std::move(impl));
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

uint64_t Checkpoint::IndexBytes(std::span<const TensorSpec> catalogue) {
  constexpr uint64_t kHeapBlock = 16;            // of the allocator, beside each block
  constexpr uint64_t kGrowth = 2;                // of a vector that doubles
  constexpr uint64_t kNode = 5 * sizeof(void*);  // of a hash table: links, hash, its share of the buckets
  uint64_t bytes = 0;
  for (const TensorSpec& tensor : catalogue) {
    const uint64_t name = tensor.name.size() + 1 + kHeapBlock;
    const uint64_t shape = tensor.shape.size() * sizeof(int64_t) + kHeapBlock;
    // In the catalogue, in the shard's header and in the tables of both by name and by kind.
    bytes += kGrowth * (sizeof(TensorSpec) + sizeof(formats::TensorInfo)) + 2 * (name + shape) + 2 * kNode +
             sizeof(std::string_view) + sizeof(size_t) + sizeof(uint64_t) + sizeof(StoredTensor);
  }
  return bytes;
}

const fs::path& Checkpoint::dir() const {
  return impl_->dir;
}

const formats::ModelConfig& Checkpoint::config() const {
  return impl_->report.config;
}

const CheckpointReport& Checkpoint::report() const {
  return impl_->report;
}

StoredTensor Checkpoint::Get(TensorKind kind, bool scale, int layer, int expert, Component component) const {
  const auto at = impl_->tensors.find(TensorKey(kind, scale, component, layer, expert));
  MILLRACE_CHECK(at != impl_->tensors.end(), TensorName(kind, scale, component, layer, expert));
  return at->second;
}

}  // namespace millrace::model
