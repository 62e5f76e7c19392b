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

}  // namespace millrace::app
