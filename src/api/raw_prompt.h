#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/requests.h"
#include "base/ids.h"
#include "text/chat_prompt.h"

namespace millrace::api {

// Raw prompts (chat-encoding specification, section 13.2). Their text is trusted: control strings in it are
// control tokens.

// Text begins with BOS however it came; ids are taken as they are.
std::vector<TokenId> EncodeRaw(const text::ChatEncoder& encoder, const Prompt& prompt);

// BOS, and then prompt and suffix around a hole, which the model fills in. nullopt: the tokenizer has no
// tokens for that.
std::optional<std::vector<TokenId>> EncodeAroundHole(const text::ChatEncoder& encoder, const Prompt& prompt,
                                                     const std::string& suffix);

// The prompt as an answer repeats it.
std::string EchoText(const text::ChatEncoder& encoder, const Prompt& prompt);

}  // namespace millrace::api
