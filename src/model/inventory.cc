#include "model/inventory.h"

namespace millrace::model {

void Inventory::Add(Category category, formats::DType dtype, uint64_t bytes) {
  total.Add(bytes);
  by_dtype[dtype].Add(bytes);
  by_category[static_cast<size_t>(category)].Add(bytes);
}

void Inventory::AddUnlisted(formats::DType dtype, uint64_t bytes) {
  total.Add(bytes);
  by_dtype[dtype].Add(bytes);
  unlisted.Add(bytes);
}

Inventory CountCatalogue(std::span<const TensorSpec> catalogue) {
  Inventory inventory;
  for (const TensorSpec& spec : catalogue) inventory.Add(spec.category, spec.dtype, spec.bytes());
  return inventory;
}

}  // namespace millrace::model
