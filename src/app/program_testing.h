#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

// For tests that run the built program; MILLRACE_BINARY is its path.

namespace millrace::app {

struct Finished {
  int status = -1;
  std::string output;  // stdout and stderr
};

inline Finished RunShell(const std::string& command) {
  Finished finished;
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> part;
  while (const size_t n = std::fread(part.data(), 1, part.size(), pipe))
    finished.output.append(part.data(), n);
  const int status = pclose(pipe);
  finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return finished;
}

inline const std::string kMillrace = MILLRACE_BINARY;

}  // namespace millrace::app
