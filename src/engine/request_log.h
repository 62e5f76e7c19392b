#pragma once

#include <string>

#include "engine/request.h"

namespace millrace::engine {

// When a request passed its stations, in seconds since it was submitted; those it never reached are 0.
struct RequestTimes {
  double admitted = 0;  // left the queue
  double first_token = 0;
  double finished = 0;
};

// The line of a finished sequence, at debug; of a failed one at error. Decode speed counts the tokens after
// the first.
void LogFinished(const std::string& request_id, const FinishEvent& event, const RequestTimes& times);

// A sink threw from its OnFinish: nobody is left to tell.
void LogLostFinish(const std::string& request_id, const std::string& what);

}  // namespace millrace::engine
