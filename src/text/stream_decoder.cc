#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace millrace::text {

std::string StreamDecoder::Push(TokenId id) {
  return tokenizer_.IsControl(id) ? std::string() : PushBytes(tokenizer_.TokenBytes(id));
}

std::string StreamDecoder::PushBytes(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Unit unit = NextUtf8Unit(rest);
    if (unit.kind == Utf8Kind::kCutOff) break;
    text += unit.kind == Utf8Kind::kCharacter ? rest.substr(0, unit.length) : kReplacementCharacter;
    rest.remove_prefix(unit.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string StreamDecoder::Flush() {
  std::string text = RepairUtf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace millrace::text
