#pragma once

#include <CLI/CLI.hpp>

namespace millrace::app {

// Accepts numbers from `low` to `high`; CLI::Range lets NaN through.
CLI::Validator Between(double low, double high);

}  // namespace millrace::app
