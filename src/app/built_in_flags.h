#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace millrace::app {

// Adds the flags of vLLM, SGLang and llama.cpp that ask for what this server always does, so that scripts
// written for those start it too. Each one that is given adds a line to `notes`, which says why it changes
// nothing; a value that this server does not do is refused. `notes` lives as long as `command`.
void AddBuiltInFlags(CLI::App& command, std::vector<std::string>& notes);

}  // namespace millrace::app
