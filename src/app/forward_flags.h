#pragma once

#include "model/forward.h"

namespace CLI {
class App;
}

namespace millrace::app {

// --late-layers needed|all. `late_layers` lives as long as `command`.
void AddLateLayersFlag(CLI::App& command, model::LateLayers& late_layers);

// --numerics fast|reference, `numerics` as it stands when it is not given. `numerics` lives as long as
// `command`.
void AddNumericsFlag(CLI::App& command, model::Numerics& numerics);

}  // namespace millrace::app
