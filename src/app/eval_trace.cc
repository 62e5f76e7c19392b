#include "app/eval_trace.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace millrace::app {
namespace {

using formats::DType;

template <typename To, typename From>
std::vector<std::byte> BytesAs(const std::vector<From>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(To));
  for (size_t i = 0; i < values.size(); ++i) {
    const To value = static_cast<To>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(To), &value, sizeof(To));
  }
  return bytes;
}

}  // namespace

template <typename T>
void EvalTrace::Collect(Collected<T>& into, std::span<const T> values, std::span<const int64_t> shape) {
  into.shape.assign(shape.begin(), shape.end());
  into.chunks.push_back({.values = {values.begin(), values.end()}, .rows = shape[0]});
}

template <typename T>
std::vector<T> EvalTrace::Join(const Collected<T>& collected, T padding, std::vector<int64_t>& shape) {
  // Widths only grow with the sequence, so the last chunk is the widest.
  int64_t width = 1;
  for (size_t d = 1; d < collected.shape.size(); ++d) width *= collected.shape[d];
  std::vector<T> joined;
  int64_t rows = 0;
  for (const Chunk<T>& chunk : collected.chunks) {
    const int64_t chunk_width = chunk.rows == 0 ? 0 : static_cast<int64_t>(chunk.values.size()) / chunk.rows;
    for (int64_t r = 0; r < chunk.rows; ++r) {
      const auto row = chunk.values.begin() + r * chunk_width;
      joined.insert(joined.end(), row, row + chunk_width);
      joined.insert(joined.end(), static_cast<size_t>(width - chunk_width), padding);
    }
    rows += chunk.rows;
  }
  shape = collected.shape;
  shape[0] = rows;
  return joined;
}

void EvalTrace::OnTensor(const std::string& name, std::span<const float> values,
                         std::span<const int64_t> shape) {
  Collect(floats_[name], values, shape);
}

void EvalTrace::OnIntegers(const std::string& name, std::span<const int64_t> values,
                           std::span<const int64_t> shape) {
  Collect(integers_[name], values, shape);
}

std::vector<EvalTensor> EvalTrace::Tensors(const std::string& prefix) const {
  std::vector<EvalTensor> tensors;
  for (const auto& [name, collected] : floats_) {
    EvalTensor tensor;
    tensor.info.name = prefix + name;
    tensor.info.dtype = DType::kF32;
    const std::vector<float> values =
        Join(collected, -std::numeric_limits<float>::infinity(), tensor.info.shape);
    tensor.bytes = BytesAs<float>(values);
    tensors.push_back(std::move(tensor));
  }
  for (const auto& [name, collected] : integers_) {
    EvalTensor tensor;
    tensor.info.name = prefix + name;
    tensor.info.dtype = DType::kI32;
    const bool blocks = name.ends_with(".candidate_blocks");
    const std::vector<int64_t> values = Join(collected, int64_t{blocks ? 0 : -1}, tensor.info.shape);
    if (name == "hash_ids") {
      tensor.info.dtype = DType::kI64;
      tensor.bytes = BytesAs<int64_t>(values);
    } else if (blocks) {
      tensor.info.dtype = DType::kU8;
      tensor.bytes = BytesAs<uint8_t>(values);
    } else {
      tensor.bytes = BytesAs<int32_t>(values);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace millrace::app
