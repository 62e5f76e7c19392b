#pragma once

#include <memory>

#include "api/exchange.h"
#include "base/ids.h"
#include "engine/engine.h"

namespace millrace::api {

// Answers 200 once the model has generated one token behind `first`, 503 when it does not; the client's
// leaving cancels it. The engine outlives it. On the exchange's thread.
void AnswerWithOneToken(engine::Engine& engine, TokenId first, std::shared_ptr<Exchange> exchange);

}  // namespace millrace::api
