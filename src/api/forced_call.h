#pragma once

#include <memory>
#include <vector>

#include "api/requests.h"
#include "base/ids.h"
#include "engine/token_constraint.h"
#include "text/chat_prompt.h"

namespace millrace::api {

// Makes an answer begin with the call that `choice` asks for, once its reasoning has ended; nullptr when it
// asks for none. `starts_in_reasoning` as in ChatPrompt. Behind the opened call the model is free.
std::shared_ptr<const engine::TokenConstraint> ForceCall(const text::ChatEncoder& encoder,
                                                         const ToolChoice& choice, bool starts_in_reasoning);

// Closes the calls block of an answer that was ended behind its only call, whose closing tag is the last
// thing in `ids`: so that a later prompt can repeat it.
void CloseCalls(const text::ChatEncoder& encoder, std::vector<TokenId>& ids);

}  // namespace millrace::api
