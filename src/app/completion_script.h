#pragma once

#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace millrace::app {

// A script that completes the subcommands and flags of `root` in `shell`: bash, zsh or fish.
// kInvalidArgument for another.
Result<std::string> CompletionScript(const CLI::App& root, const std::string& shell);

}  // namespace millrace::app
