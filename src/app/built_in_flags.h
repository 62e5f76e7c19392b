#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace millrace::app {

// Their group in the help.
inline constexpr const char* kBuiltInFlags = "Accepted, changes nothing (it is always so)";

// Adds the flags of vLLM, SGLang and llama.cpp that ask for what this server always does, so that scripts
// written for those start it too. Each one that is given adds a line to `notes`, which says why it changes
// nothing; a value that this server does not do is refused. What `command` has already under such a name
// stays. `notes` lives as long as `command`.
void AddBuiltInFlags(CLI::App& command, std::vector<std::string>& notes);

}  // namespace millrace::app
