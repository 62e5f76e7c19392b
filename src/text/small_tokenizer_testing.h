#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "formats/byte_level.h"
#include "formats/tokenizer_json.h"
#include "text/control_ids.h"
#include "text/tokenizer.h"

namespace millrace::text {

// A tokenizer for tests that need tokens but no vocabulary: token b is the byte b, a few tokens are longer,
// and the control tokens of completions are there.
struct SmallTokenizer {
  static constexpr std::pair<std::string_view, std::string_view> kMerges[] = {
      {"\n", "\n"}, {"<", "/"}, {"\"", ">"}, {">", "\n"}, {" ", "<"}, {"\xBD", "\x9C"}, {"\xEF", "\xBD"}};

  Tokenizer tokenizer;
  ControlIds ids;

  static SmallTokenizer Make() {
    formats::TokenizerData data;
    for (int byte = 0; byte < 256; ++byte) {
      data.tokens.push_back(formats::ByteLevelEncode(std::string(1, static_cast<char>(byte))));
    }
    for (const auto& [left, right] : kMerges) {
      data.merges.emplace_back(formats::ByteLevelEncode(left), formats::ByteLevelEncode(right));
      data.tokens.push_back(data.merges.back().first + data.merges.back().second);
    }
    for (const char* name : {"<think>", "</think>", "｜DSML｜", "<｜end▁of▁sentence｜>", "<｜User｜>"}) {
      data.added_tokens.push_back({.id = static_cast<TokenId>(data.tokens.size()), .content = name});
      data.tokens.emplace_back(name);
    }
    Result<Tokenizer> tokenizer = Tokenizer::Build(data);
    MILLRACE_CHECK(tokenizer.ok(), "the small vocabulary is complete");
    SmallTokenizer small{.tokenizer = *std::move(tokenizer), .ids = {}};
    small.ids.think_begin = *small.tokenizer.FindToken("<think>");
    small.ids.think_end = *small.tokenizer.FindToken("</think>");
    small.ids.dsml = *small.tokenizer.FindToken("｜DSML｜");
    small.ids.eos = *small.tokenizer.FindToken("<｜end▁of▁sentence｜>");
    small.ids.user = *small.tokenizer.FindToken("<｜User｜>");
    return small;
  }
};

}  // namespace millrace::text
