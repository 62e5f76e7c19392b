#pragma once

#include <string>

#include "engine/request.h"

namespace millrace::engine {

// The line of a finished sequence, at debug; of a failed one at error. Decode speed counts the tokens after
// the first.
void LogFinished(const std::string& request_id, const FinishEvent& event);

// A sink threw from its OnFinish: nobody is left to tell.
void LogLostFinish(const std::string& request_id, const std::string& what);

}  // namespace millrace::engine
