#pragma once

#include <cstdint>
#include <string>

namespace millrace::loadgen {

// Why a request to the server under test gave no whole answer.
enum class FailureKind : uint8_t {
  kConnect,         // no connection
  kTimeout,         // not done in the time that a request may take
  kStalled,         // no byte for as long as a server may be silent
  kHttpStatus,      // answered with a status other than 200
  kMalformedHttp,   // what came is not HTTP
  kMalformedEvent,  // HTTP, but not a stream of chat chunks
  kErrorEvent,      // an error object inside the stream
  kClosedEarly,     // the connection ended before the answer did
};

struct Failure {
  FailureKind kind;
  int status = 0;      // of kHttpStatus
  std::string detail;  // one line, for people

  // The name that equal failures are counted under: "http 429", "stalled", "closed early".
  std::string Name() const;
};

}  // namespace millrace::loadgen
