#pragma once

#include <string>

namespace millrace::app {

// "0.1.0"
std::string Version();

// What --version prints: version, the commit it was built from where that is known, and the instruction sets
// that kernels can use here, best first.
std::string VersionText();

}  // namespace millrace::app
