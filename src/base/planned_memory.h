#pragma once

#include <cstdint>
#include <string>

namespace millrace {

// One line of a memory plan, under the name of the ledger's account that will hold the bytes.
struct PlannedMemory {
  std::string name;
  uint64_t bytes = 0;
  std::string depends_on = {};  // the settings it grows with; empty: the model alone
  bool mapped = false;          // pages of the checkpoint's files: shared, and the kernel can take them back
};

}  // namespace millrace
