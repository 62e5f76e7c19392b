#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"
#include "model/forward.h"

namespace millrace::app {

// One tensor ready to be written.
struct EvalTensor {
  formats::TensorInfo info;  // without offsets
  std::vector<std::byte> bytes;
};

// Collects what the forward pass shows of one prompt, chunk after chunk, and joins the chunks' rows. Arrays
// that are as wide as the entries so far (index scores, selections) are padded to the widest: -inf, -1, 0.
class EvalTrace : public model::LayerTrace {
 public:
  void OnTensor(const std::string& name, std::span<const float> values,
                std::span<const int64_t> shape) override;
  void OnIntegers(const std::string& name, std::span<const int64_t> values,
                  std::span<const int64_t> shape) override;

  // Everything seen, `prefix` before each name. Integers are stored as the goldens store them: I64 for
  // hash_ids, U8 for candidate_blocks, I32 otherwise.
  std::vector<EvalTensor> Tensors(const std::string& prefix) const;

 private:
  template <typename T>
  struct Chunk {
    std::vector<T> values;
    int64_t rows = 0;
  };
  template <typename T>
  struct Collected {
    std::vector<int64_t> shape;  // of the last chunk; the first dimension is its rows
    std::vector<Chunk<T>> chunks;
  };

  template <typename T>
  static void Collect(Collected<T>& into, std::span<const T> values, std::span<const int64_t> shape);
  template <typename T>
  static std::vector<T> Join(const Collected<T>& collected, T padding, std::vector<int64_t>& shape);

  std::map<std::string, Collected<float>> floats_;
  std::map<std::string, Collected<int64_t>> integers_;
};

}  // namespace millrace::app
