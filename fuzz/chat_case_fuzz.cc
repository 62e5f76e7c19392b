// Conversations as JSON: any bytes give a prompt in which every control token is the encoding's own, or an
// error that can be shown; JSON that is accepted keeps its value when it is written and read again.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/check.h"
#include "formats/tokenizer_json.h"
#include "text/chat_case.h"
#include "text/chat_prompt.h"
#include "text/ordered_json.h"
#include "text/utf8.h"

namespace {

using namespace millrace;
using text::ChatModel;
using text::OrderedJson;

// The 256 bytes and the control tokens of the encoding.
text::Tokenizer ByteTokenizer() {
  formats::TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(formats::ByteLevelEncode(std::string(1, static_cast<char>(byte))));
  }
  for (const char* const name :
       {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜System｜>",
        "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>", "<｜deepseek_image｜>", "<｜action｜>",
        "<｜query｜>"}) {
    data.added_tokens.push_back({.id = static_cast<TokenId>(data.tokens.size()), .content = name});
    data.tokens.emplace_back(name);
  }
  auto tokenizer = text::Tokenizer::Build(data);
  MILLRACE_CHECK(tokenizer.ok(), "the vocabulary of bytes is complete");
  return *std::move(tokenizer);
}

text::ChatEncoder Encoder(const text::Tokenizer& tokenizer, ChatModel model) {
  auto encoder = text::ChatEncoder::Create(tokenizer, model);
  MILLRACE_CHECK(encoder.ok(), "the vocabulary has the control tokens");
  return *std::move(encoder);
}

void CheckJson(const OrderedJson& value) {
  const std::string written = text::PythonJson(value);
  const auto again = text::ParseOrderedJson(written);
  MILLRACE_CHECK(again.ok() && *again == value, "JSON does not survive writing and reading");
  MILLRACE_CHECK(text::PythonJson(*again) == written, "writing JSON twice changes more");
}

void CheckPrompt(const text::ChatPrompt& prompt, const text::ChatEncoder& encoder) {
  size_t own_tokens = 0;
  for (const text::PromptPieces::Piece& piece : prompt.pieces.pieces()) {
    if (const auto* const ids = std::get_if<text::PromptPieces::Ids>(&piece)) own_tokens += ids->size();
  }
  size_t control_tokens = 0;
  for (const TokenId id : encoder.Encode(prompt)) control_tokens += encoder.tokenizer().IsControl(id);
  MILLRACE_CHECK(control_tokens == own_tokens, "caller text became a control token");
  MILLRACE_CHECK(text::IsUtf8(prompt.pieces.Spelled(encoder.tokenizer())), "a prompt that is not UTF-8");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const text::Tokenizer tokenizer = ByteTokenizer();
  static const text::ChatEncoder v41 = Encoder(tokenizer, ChatModel::kV41);
  static const text::ChatEncoder v4 = Encoder(tokenizer, ChatModel::kV4);
  const auto value = text::ParseOrderedJson({reinterpret_cast<const char*>(data), size});
  if (!value.ok()) {
    MILLRACE_CHECK(text::IsUtf8(value.error().message()), "an error that is not UTF-8");
    return 0;
  }
  CheckJson(*value);
  for (const ChatModel default_model : {ChatModel::kV41, ChatModel::kV4}) {
    const auto read = text::ReadChatCase(*value, default_model);
    if (!read.ok()) {
      MILLRACE_CHECK(text::IsUtf8(read.error().message()), "an error that is not UTF-8");
      continue;
    }
    const text::ChatEncoder& encoder = read->model == ChatModel::kV41 ? v41 : v4;
    const auto prompt = encoder.Render(read->request);
    if (prompt.ok()) CheckPrompt(*prompt, encoder);
  }
  return 0;
}
