#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/checkpoint_index.h"

// Any text gives an index or an error; an index that was accepted names only files of its own directory, and
// is written and read back unchanged.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::model::ParseCheckpointIndex;
  const auto index = ParseCheckpointIndex({reinterpret_cast<const char*>(data), size});
  if (!index.ok()) {
    MILLRACE_CHECK(!index.error().message().empty(), "an error without a message");
    return 0;
  }
  for (const auto& [tensor, shard] : index->weight_map)
    MILLRACE_CHECK(shard.find('/') == shard.npos, "a shard outside the directory");
  const auto again = ParseCheckpointIndex(millrace::model::WriteCheckpointIndex(*index));
  MILLRACE_CHECK(
      again.ok() && again->weight_map == index->weight_map && again->total_size == index->total_size,
      "an index does not survive writing and reading");
  return 0;
}
