#pragma once

#include "model/forward.h"

namespace CLI {
class App;
}

namespace millrace::app {

// --late-layers needed|all. `late_layers` lives as long as `command`.
void AddLateLayersFlag(CLI::App& command, model::LateLayers& late_layers);

}  // namespace millrace::app
