#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "model/catalogue.h"

namespace millrace::model {

struct Tally {
  uint64_t tensors = 0;
  uint64_t bytes = 0;

  void Add(uint64_t tensor_bytes) {
    ++tensors;
    bytes += tensor_bytes;
  }
};

// Tensors and bytes of a checkpoint, or of what a config asks for, split the two ways that the released
// figures are given in (shared/spec/v41-checkpoint.md, sections 0 and 7).
struct Inventory {
  Tally total;
  std::map<formats::DType, Tally> by_dtype;
  std::array<Tally, kCategories> by_category{};
  Tally unlisted;  // tensors of the files that the catalogue does not have

  const Tally& Of(Category category) const { return by_category[static_cast<size_t>(category)]; }

  void Add(Category category, formats::DType dtype, uint64_t bytes);
  void AddUnlisted(formats::DType dtype, uint64_t bytes);
};

Inventory CountCatalogue(std::span<const TensorSpec> catalogue);

}  // namespace millrace::model
