#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "formats/tokenizer_json.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using millrace::TokenId;
using millrace::formats::TokenizerData;
using millrace::text::ControlTokens;
using millrace::text::StreamDecoder;
using millrace::text::Tokenizer;

// The 256 bytes, words grown from them, and control tokens that begin alike.
TokenizerData SmallVocabulary() {
  TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(millrace::formats::ByteLevelEncode(std::string(1, static_cast<char>(byte))));
  }
  const std::pair<const char*, const char*> merges[] = {
      {" ", " "},   {"a", "a"},   {"aa", "aa"}, {"t", "h"},       {"h", "e"},   {"th", "e"},
      {" ", "the"}, {"\n", "\n"}, {"1", "1"},   {"\xC3", "\xA9"}, {"  ", "  "}, {"-", "-"}};
  for (const auto& [left, right] : merges) {
    data.merges.emplace_back(millrace::formats::ByteLevelEncode(left),
                             millrace::formats::ByteLevelEncode(right));
    data.tokens.push_back(data.merges.back().first + data.merges.back().second);
  }
  for (const char* name : {"<t", "<think>", "</think>", "the", "｜DSML｜"}) {
    data.added_tokens.push_back({.id = static_cast<TokenId>(data.tokens.size()), .content = name});
    data.tokens.emplace_back(name);
  }
  return data;
}

// Every text comes back from its ids, whole or streamed; invalid parts come back repaired.
void CheckRoundTrip(const Tokenizer& tokenizer, std::string_view bytes) {
  const std::string text = millrace::text::RepairUtf8(bytes);
  const std::vector<TokenId> ids = tokenizer.EncodeText(bytes);
  MILLRACE_CHECK(tokenizer.Decode(ids) == text, "text does not survive encoding and decoding");
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const TokenId id : ids) {
    MILLRACE_CHECK(!tokenizer.IsControl(id), "caller text became a control token");
    const std::string part = decoder.Push(id);
    MILLRACE_CHECK(millrace::text::IsUtf8(part), "part of a character was handed out");
    streamed += part;
  }
  MILLRACE_CHECK(streamed + decoder.Flush() == text, "the stream differs from the whole");
  MILLRACE_CHECK(tokenizer.Decode(tokenizer.EncodePrompt(bytes), ControlTokens::kKeep) == text,
                 "trusted text does not survive encoding and decoding");
}

}  // namespace

// Any text gives a tokenizer or an error. An accepted file is written and read back unchanged, and encodes
// anything without loss; so does a fixed tokenizer, for inputs that are no such file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const millrace::Result<Tokenizer> fixed = Tokenizer::Build(SmallVocabulary());
  MILLRACE_CHECK(fixed.ok(), "the small vocabulary is complete");
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view sample = input.substr(0, std::min<size_t>(size, 2048));
  const auto file = millrace::formats::ParseTokenizerJson(input);
  if (!file.ok()) {
    MILLRACE_CHECK(!file.error().message().empty(), "an error without a message");
    CheckRoundTrip(*fixed, sample);
    return 0;
  }
  const auto again = millrace::formats::ParseTokenizerJson(millrace::formats::WriteTokenizerJson(*file));
  MILLRACE_CHECK(again.ok() && *again == *file, "a tokenizer does not survive writing and reading");
  const auto tokenizer = Tokenizer::Build(*file);
  MILLRACE_CHECK(tokenizer.ok(), "an accepted file gives no tokenizer");
  CheckRoundTrip(*tokenizer, sample);
  return 0;
}
