#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/field_reader.h"
#include "api/requests.h"

namespace millrace::api {

// The most choices of one prompt, and the most sequences of one request.
inline constexpr int kMaxChoices = 128;

// Everything of OutputOptions but logprobs, whose spelling differs between the endpoints.
OutputOptions ReadOutputOptions(FieldReader& body);

// The fields that other dialects share. Strings that end an answer: one, or an array of up to 16.
std::vector<std::string> ReadStopStrings(FieldReader& body, std::string_view key);
// "top_p"; 0, which leaves the most probable token alone, is to the sampler a share just above it.
float ReadTopP(FieldReader& body);
// "top_k"; -1 is vLLM's way to switch it off.
int32_t ReadTopK(FieldReader& body);

enum class OpenAiEndpoint : uint8_t { kChat, kCompletions };

// Refuses the fields of the table in openai_output_options.cc whose value asks for something that the
// endpoint does not have.
void RefuseUnsupportedFields(FieldReader& body, OpenAiEndpoint endpoint);

// Ids of an array "stop_token_ids" or of a prompt, each a non-negative 32-bit integer.
std::vector<TokenId> ReadTokenIds(const text::OrderedJson::Array& array, const std::string& path,
                                  FirstError& error);

}  // namespace millrace::api
