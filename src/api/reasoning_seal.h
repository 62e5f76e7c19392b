#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace::api {

// The "encrypted_content" of a reasoning item: how clients that store nothing on the server bring an answer's
// reasoning back, when they drop its text (Codex does). It hides nothing: it is the text in base64, with a
// mark by which this server knows its own.
std::string SealReasoning(std::string_view reasoning);

// The text that SealReasoning was given; nullopt for what it did not make, or not as it made it.
std::optional<std::string> UnsealReasoning(std::string_view sealed);

}  // namespace millrace::api
