#pragma once

#include "api/http_server.h"
#include "api/service.h"

namespace millrace::api {

// Lets `http` serve `service`: handler, header checks, counters. Both outlive the server's I/O thread. Error
// kIo as HttpServer::Serve.
Status Connect(HttpServer& http, Service& service);

}  // namespace millrace::api
