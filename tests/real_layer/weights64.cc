#include "real_layer/weights64.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/codecs.h"

namespace millrace::real_layer {
namespace {

using formats::DType;

constexpr int64_t kScaleCols = 32;

std::array<double, 256> DecodeTable(float (*decode)(uint8_t)) {
  std::array<double, 256> table;
  for (int code = 0; code < 256; ++code)
    table[static_cast<size_t>(code)] = decode(static_cast<uint8_t>(code));
  return table;
}

const std::array<double, 256>& E4m3Table() {
  static const std::array<double, 256> table = DecodeTable(E4m3ToFloat);
  return table;
}

uint8_t CodeAt(const std::byte* data, int64_t i) {
  return static_cast<uint8_t>(data[i]);
}

template <typename T>
T ValueAt(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

void Require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void Matrix64::DecodeRow(int64_t row, double* out) const {
  const int64_t scale_cols = (cols_ + kScaleCols - 1) / kScaleCols;
  const auto scale = [&](int64_t block) {
    return double{E8m0ToFloat(CodeAt(scales_, row / scale_rows_ * scale_cols + block))};
  };
  switch (dtype_) {
    case DType::kF32:
      for (int64_t i = 0; i < cols_; ++i) out[i] = ValueAt<float>(data_, row * cols_ + i);
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < cols_; ++i) out[i] = Bf16ToFloat(ValueAt<uint16_t>(data_, row * cols_ + i));
      return;
    case DType::kF8E4M3: {
      const std::array<double, 256>& values = E4m3Table();
      for (int64_t block = 0; block < scale_cols; ++block) {
        const double s = scale(block);
        for (int64_t i = block * kScaleCols; i < std::min(cols_, (block + 1) * kScaleCols); ++i)
          out[i] = values[CodeAt(data_, row * cols_ + i)] * s;
      }
      return;
    }
    case DType::kI8:
      for (int64_t block = 0; block < scale_cols; ++block) {
        const double s = scale(block);
        for (int64_t i = block * kScaleCols; i < (block + 1) * kScaleCols; i += 2) {
          const uint8_t pair = CodeAt(data_, (row * cols_ + i) / 2);
          out[i] = E2m1ToFloat(pair & 15) * s;
          out[i + 1] = E2m1ToFloat(pair >> 4) * s;
        }
      }
      return;
    default:
      throw std::runtime_error("no matrix of the backbone has this type");
  }
}

StoredWeights::StoredWeights(const std::filesystem::path& dir) {
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("model-") || !name.ends_with(".safetensors")) continue;
    Result<formats::SafetensorsFile> file = formats::SafetensorsFile::Open(entry.path());
    Require(file.ok(), file.ok() ? "" : file.error().message());
    shards_.push_back(std::move(file).value());
  }
  Require(!shards_.empty(), "no shards in " + dir.string());
}

StoredWeights::Found StoredWeights::Find(const std::string& name) const {
  for (const formats::SafetensorsFile& shard : shards_) {
    const formats::TensorInfo* info = shard.Find(name);
    if (info != nullptr) return {.info = info, .data = shard.Bytes(*info).data()};
  }
  return {};
}

Matrix64 StoredWeights::Matrix(const std::string& name, int64_t scale_rows) const {
  Found weight = Find(name + ".weight");
  if (weight.info == nullptr) weight = Find(name);
  Require(weight.info != nullptr && weight.info->shape.size() == 2, name + " is not a stored matrix");
  Matrix64 m;
  m.dtype_ = weight.info->dtype;
  m.rows_ = weight.info->shape[0];
  m.cols_ = weight.info->shape[1] * (m.dtype_ == DType::kI8 ? 2 : 1);
  m.data_ = weight.data;
  m.scales_ = Find(name + ".scale").data;
  m.scale_rows_ = m.dtype_ == DType::kI8 ? 1 : scale_rows;
  const bool scaled = m.dtype_ == DType::kI8 || m.dtype_ == DType::kF8E4M3;
  Require(scaled == (m.scales_ != nullptr), name + ": a scale belongs to quantised matrices only");
  return m;
}

std::vector<double> StoredWeights::Values(const std::string& name) const {
  const Found found = Find(name);
  Require(found.info != nullptr, name + " is not stored");
  const bool wide = found.info->dtype == DType::kF32;
  Require(wide || found.info->dtype == DType::kBF16, name + " is neither F32 nor BF16");
  std::vector<double> values((found.info->end - found.info->begin) / (wide ? 4 : 2));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    values[i] = wide ? ValueAt<float>(found.data, at) : Bf16ToFloat(ValueAt<uint16_t>(found.data, at));
  }
  return values;
}

}  // namespace millrace::real_layer
