#include "app/forward_flags.h"

#include <CLI/CLI.hpp>
#include <string>

namespace millrace::app {

void AddLateLayersFlag(CLI::App& command, model::LateLayers& late_layers) {
  command
      .add_option_function<std::string>(
          "--late-layers",
          [&late_layers](const std::string& name) {
            late_layers = name == "all" ? model::LateLayers::kAll : model::LateLayers::kNeeded;
          },
          "Prompt tokens that the layers after the last KV source run for: those that the answer depends on "
          "(needed), or all, for comparison; the answer is the same")
      ->check(CLI::IsMember({"needed", "all"}))
      ->default_str("needed");
}

void AddNumericsFlag(CLI::App& command, model::Numerics& numerics) {
  command
      .add_option_function<std::string>(
          "--numerics",
          [&numerics](const std::string& name) {
            numerics = name == "fast" ? model::Numerics::kFast : model::Numerics::kReference;
          },
          "fast: the routed experts' inputs are rounded to 8 bits in blocks of 32, those of most fp8 "
          "matrices to "
          "bfloat16; reference: float32 throughout")
      ->check(CLI::IsMember({"fast", "reference"}))
      ->default_str(numerics == model::Numerics::kFast ? "fast" : "reference");
}

}  // namespace millrace::app
