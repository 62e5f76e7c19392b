#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/answer_needs.h"

namespace millrace::api {

// What a request has in it that decides how much its answer may take, as its client calls it.
struct RequestFields {
  std::string_view limit = "max_tokens";
  std::string_view logprobs = "top_logprobs";
  int64_t min_tokens = 0;
};

// What a client can do that asked for an answer of `shape`, which would reserve more than `most`. Each is
// enough by itself, and says the most that is. `streamed`: what the format takes of a stream. Ends with what
// helps always, the server's flag, which takes twice what one request may have.
std::string RemediesFor(const AnswerShape& shape, const FormatMemory& streamed, const RequestFields& fields,
                        uint64_t most);

}  // namespace millrace::api
