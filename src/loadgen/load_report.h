#pragma once

#include <boost/json/object.hpp>

#include <string>

#include "loadgen/conversations.h"
#include "loadgen/fairness.h"
#include "loadgen/needles.h"
#include "loadgen/random_load.h"
#include "loadgen/summary.h"

// Figures of load runs as lines for a terminal and as JSON. Names of vLLM's `bench serve` stand for the same
// things; times in JSON are in the unit that ends a name.
namespace millrace::loadgen {

// Requests, errors by name, tokens, throughput and the table of latencies. `duration_s` 0: no throughput.
std::string SummaryText(const Summary& summary, double duration_s);
boost::json::object SummaryJson(const Summary& summary, double duration_s);

std::string ReuseText(const ReuseMeter& reuse);
boost::json::object ReuseJson(const ReuseMeter& reuse);

std::string Text(const RandomLoadResult& result);
boost::json::object Json(const RandomLoadResult& result);

std::string Text(const ConversationsResult& result);
boost::json::object Json(const ConversationsResult& result);

std::string Text(const FairnessResult& result);
boost::json::object Json(const FairnessResult& result);

std::string Text(const NeedlesResult& result);
boost::json::object Json(const NeedlesResult& result);

}  // namespace millrace::loadgen
