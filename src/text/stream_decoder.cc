#include "text/stream_decoder.h"

namespace millrace::text {

std::string StreamDecoder::Push(TokenId id) {
  return tokenizer_.IsControl(id) ? std::string() : PushBytes(tokenizer_.TokenBytes(id));
}

}  // namespace millrace::text
