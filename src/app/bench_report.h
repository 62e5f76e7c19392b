#pragma once

#include <boost/json/fwd.hpp>

#include <span>
#include <string>

#include "rig/bench_row.h"
#include "rig/machine_limits.h"

namespace millrace::app {

// The machine, its limits and the rows, as lines for a terminal or as one JSON object.
std::string LimitsText(const rig::MachineDescription& machine, const rig::MachineLimits& limits);
std::string RowHeadText();
std::string RowText(const rig::BenchRow& row);

boost::json::object BenchJson(const rig::MachineDescription& machine, const rig::MachineLimits& limits,
                              std::span<const rig::BenchRow> rows);

}  // namespace millrace::app
