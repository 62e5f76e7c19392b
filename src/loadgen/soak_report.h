#pragma once

#include <boost/json/object.hpp>

#include <string>

#include "loadgen/soak.h"

// As load_report.h, for soaks.
namespace millrace::loadgen {

std::string Text(const SoakResult& result);
boost::json::object Json(const SoakResult& result);

}  // namespace millrace::loadgen
