#pragma once

#include <chrono>

#include "api/http_server.h"
#include "api/service.h"
#include "engine/engine.h"

namespace millrace::api {

// The orderly end of a server: no new work; what is running or waiting may finish until `deadline` and is
// cancelled then; finished answers leave. Until that is done connections are accepted, probes answered (/live
// 200, /ready and /health 503 with the reason) and other requests refused; then the listener closes. Blocks;
// afterwards the I/O thread has ended.
void DrainServer(HttpServer& http, Service& service, engine::Engine& engine,
                 std::chrono::steady_clock::time_point deadline);

}  // namespace millrace::api
