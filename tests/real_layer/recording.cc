#include "real_layer/recording.h"

#include <cstring>
#include <utility>

#include "formats/safetensors.h"
#include "real_layer/weights64.h"

namespace millrace::real_layer {
namespace {

using formats::DType;
using formats::SafetensorsFile;
using formats::TensorInfo;

template <typename To, typename From>
std::vector<std::vector<To>> RowsOfTensor(std::span<const std::byte> bytes, const TensorInfo& info) {
  std::vector<std::vector<To>> rows(static_cast<size_t>(info.shape[0]));
  const size_t width = bytes.size() / sizeof(From) / rows.size();
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < width; ++i) {
      From value;
      std::memcpy(&value, bytes.data() + (r * width + i) * sizeof value, sizeof value);
      rows[r].push_back(static_cast<To>(value));
    }
  }
  return rows;
}

SafetensorsFile OpenGolden(const std::filesystem::path& path) {
  Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  Require(file.ok(), file.ok() ? "" : file.error().message());
  return std::move(file).value();
}

std::vector<std::vector<int64_t>> IntegerRows(const SafetensorsFile& file, const TensorInfo& info) {
  const std::span<const std::byte> bytes = file.Bytes(info);
  if (info.dtype == DType::kI64) return RowsOfTensor<int64_t, int64_t>(bytes, info);
  if (info.dtype == DType::kI32) return RowsOfTensor<int64_t, int32_t>(bytes, info);
  Require(info.dtype == DType::kU8, info.name + " has no integer type");
  return RowsOfTensor<int64_t, uint8_t>(bytes, info);
}

// Appends `rows` rows of the running batch's tensor, from row `first` on.
template <typename T>
void AppendRows(std::vector<std::vector<T>>& to, std::span<const T> values, size_t width, int64_t first,
                int64_t rows) {
  for (int64_t r = first; r < first + rows; ++r) {
    const std::span<const T> row = values.subspan(static_cast<size_t>(r) * width, width);
    to.emplace_back(row.begin(), row.end());
  }
}

}  // namespace

Recording GoldenRecording(const std::filesystem::path& dir) {
  Recording recording;
  const SafetensorsFile intermediates = OpenGolden(dir / "intermediates.safetensors");
  for (const TensorInfo& info : intermediates.tensors()) {
    if (info.name.starts_with("state.")) continue;
    if (info.dtype == DType::kF32) {
      recording.floats[info.name] = RowsOfTensor<float, float>(intermediates.Bytes(info), info);
    } else {
      recording.integers[info.name] = IntegerRows(intermediates, info);
    }
  }
  const SafetensorsFile results = OpenGolden(dir / "golden.safetensors");
  const TensorInfo& logits = *results.Find("mid.logits");
  recording.floats["logits"] = RowsOfTensor<float, float>(results.Bytes(logits), logits);
  for (const auto& id : IntegerRows(results, *results.Find("mid.ids"))) {
    recording.output_positions.push_back(static_cast<int64_t>(recording.ids.size()));
    recording.ids.push_back(static_cast<TokenId>(id[0]));
  }
  return recording;
}

Recorder::Recorder(model::Forward& forward, size_t n_sequences)
    : forward_(forward), recordings_(n_sequences) {}

void Recorder::Run(std::vector<Part> parts) {
  parts_ = std::move(parts);
  const auto vocab = static_cast<size_t>(forward_.plan().config.vocab_size);
  std::vector<model::BatchItem> items;
  size_t n_logits = 0;
  for (const Part& part : parts_) {
    items.push_back({.state = part.state,
                     .tokens = part.ids,
                     .logits = part.logits ? model::LogitsWanted::kAll : model::LogitsWanted::kNone});
    if (part.logits) n_logits += part.ids.size();
  }
  std::vector<float> logits(n_logits * vocab);
  forward_.Run(items, logits, this);
  int64_t row = 0;
  for (const Part& part : parts_) {
    Recording& recording = recordings_[part.sequence];
    if (part.logits) {
      AppendRows<float>(recording.floats["logits"], logits, vocab, row,
                        static_cast<int64_t>(part.ids.size()));
      row += static_cast<int64_t>(part.ids.size());
      for (size_t i = 0; i < part.ids.size(); ++i)
        recording.output_positions.push_back(static_cast<int64_t>(recording.ids.size() + i));
    }
    recording.ids.insert(recording.ids.end(), part.ids.begin(), part.ids.end());
  }
}

int64_t Recorder::RowsOf(const std::string& name, const Part& part) const {
  const auto n = static_cast<int64_t>(part.ids.size());
  if (name == "final_norm") return part.logits ? n : 0;
  const bool entries =
      name.ends_with(".latent") || name.ends_with(".index_k") || name.ends_with(".compressed_kv");
  if (!entries) return n;
  const int64_t ratio =
      forward_.plan().config.compress_ratios[static_cast<size_t>(std::stoi(name.substr(1)))];
  const auto start = static_cast<int64_t>(recordings_[part.sequence].ids.size());
  return (start + n) / ratio - start / ratio;
}

void Recorder::OnTensor(const std::string& name, std::span<const float> values,
                        std::span<const int64_t> shape) {
  if (shape[0] == 0) return;
  int64_t row = 0;
  for (const Part& part : parts_) {
    const int64_t rows = RowsOf(name, part);
    AppendRows(recordings_[part.sequence].floats[name], values, values.size() / static_cast<size_t>(shape[0]),
               row, rows);
    row += rows;
  }
  Require(row == shape[0], name + ": another number of rows than its sequences have");
}

void Recorder::OnIntegers(const std::string& name, std::span<const int64_t> values,
                          std::span<const int64_t> shape) {
  int64_t row = 0;
  for (const Part& part : parts_) {
    const int64_t rows = RowsOf(name, part);
    AppendRows(recordings_[part.sequence].integers[name], values,
               values.size() / static_cast<size_t>(shape[0]), row, rows);
    row += rows;
  }
  Require(row == shape[0], name + ": another number of rows than its sequences have");
}

}  // namespace millrace::real_layer
