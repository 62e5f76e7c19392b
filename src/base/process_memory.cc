#include "base/process_memory.h"

#include <fstream>
#include <string>

#include "base/units.h"

namespace millrace {

ProcessMemory ReadProcessMemory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) memory.anonymous_bytes = std::stoull(line.substr(8)) * kKiB;
    if (line.starts_with("RssFile:")) memory.file_bytes = std::stoull(line.substr(8)) * kKiB;
  }
  return memory;
}

}  // namespace millrace
