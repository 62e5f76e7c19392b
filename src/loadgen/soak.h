#pragma once

#include <boost/json/array.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "loadgen/conversations.h"
#include "loadgen/load_session.h"
#include "loadgen/metrics_page.h"
#include "loadgen/summary.h"

namespace millrace::loadgen {

// Agents at work for a while: contexts that grow by tool outputs, are edited, moved and compacted, sub-agents
// beside them, clients that vanish. Rates are probabilities.
struct SoakOptions {
  double duration_s = 60;
  int sessions = 8;
  int64_t system_tokens = 512;  // shared by all sessions and sub-agents
  int64_t input_tokens = 64;    // of a task
  int64_t tool_tokens = 256;    // of a tool's output
  int64_t output_tokens = 64;
  int64_t compact_at_tokens = 4096;  // of a prompt
  bool tools = true;                 // declare a tool
  double reminder_rate = 0.3;        // of a request: the reminder moves to the last message
  double disconnect_rate = 0.05;     // of a request: the client leaves, then asks again
  double edit_rate = 0.1;            // of a request: asked again with its last message shortened
  double repeat_rate = 0.1;          // of a request: asked again as it was
  double subagent_rate = 0.2;        // of a task
  double settle_s = 10;              // for the server to become idle at the end
  double give_up_s = 30;             // without one connection, however often it was tried: the soak ends
};

// What one prompt gave twice.
struct Mismatch {
  std::string when;   // "repeated at once", "after a disconnect", "when idle"
  std::string first;  // from some bytes before the first difference on
  std::string second;
};

struct SoakResult {
  Summary summary;
  std::map<std::string, ReuseMeter> reuse;  // by how a prompt came out of the one before: "extended", ...
  int64_t tasks = 0;
  int64_t tool_outputs = 0;
  int64_t compactions = 0;
  int64_t subagents = 0;
  int64_t compared = 0;  // pairs of answers to one prompt
  int64_t mismatches = 0;
  std::vector<Mismatch> examples;    // of the first few
  std::optional<ServerLoad> before;  // nothing: no /metrics
  std::optional<ServerLoad> after;
  double duration_s = 0;
  bool interrupted = false;
  std::string unreachable;  // why the soak gave up; empty: it did not

  // What must not be: mismatches, failures, requests that the server still holds, no server. A line each.
  std::vector<std::string> Faults() const;
};

// Answers are compared only when the session's temperature is 0.
SoakResult RunSoak(LoadSession& session, const SoakOptions& options);

}  // namespace millrace::loadgen
