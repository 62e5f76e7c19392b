#include "app/api_key_sources.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "formats/text_file.h"

namespace millrace::app {
namespace {

constexpr size_t kMaxKeyFileBytes = 1 << 20;

Status CheckKey(const std::string& key, const std::string& source) {
  const bool fits = !key.empty() && std::ranges::all_of(key, [](char c) { return c > ' ' && c <= '~'; });
  if (fits) return {};
  return Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: a key must be at least one printable ASCII character, without spaces", source));
}

Status ReadKeyFile(const std::string& path, CollectedKeys& collected) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, formats::ReadTextFile(path, kMaxKeyFileBytes));
  std::istringstream lines(text);
  const size_t before = collected.keys.size();
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
      line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    MILLRACE_RETURN_IF_ERROR(CheckKey(line, path));
    collected.keys.push_back(line);
  }
  if (collected.keys.size() == before)
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} holds no key; write one a line", path));
  constexpr unsigned kOfOthers = 0077;
  struct stat facts = {};
  if (stat(path.c_str(), &facts) == 0 && (facts.st_mode & kOfOthers) != 0) {
    collected.warnings.push_back(fmt::format("{} can be read by other users (mode {:04o}): chmod 600 it",
                                             path, facts.st_mode & 07777u));
  }
  return {};
}

}  // namespace

Result<CollectedKeys> CollectApiKeys(const ApiKeySources& sources, const Environment& environment) {
  CollectedKeys collected;
  for (const std::string& key : sources.keys) {
    MILLRACE_RETURN_IF_ERROR(CheckKey(key, "--api-key"));
    collected.keys.push_back(key);
  }
  for (const std::string& path : sources.files) MILLRACE_RETURN_IF_ERROR(ReadKeyFile(path, collected));
  for (const char* variable : {"MILLRACE_API_KEY", "VLLM_API_KEY"}) {
    if (!collected.keys.empty()) break;
    const std::optional<std::string> key = environment.Get(variable);
    if (!key) continue;
    // Left empty by mistake, it must not open the server to everyone.
    if (key->empty()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{} is set but empty; unset it or give it a key", variable));
    }
    MILLRACE_RETURN_IF_ERROR(CheckKey(*key, variable));
    collected.keys.push_back(*key);
  }
  return collected;
}

}  // namespace millrace::app
