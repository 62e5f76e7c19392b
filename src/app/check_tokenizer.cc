#include "app/check_tokenizer.h"

#include <fmt/format.h>

#include "text/control_ids.h"

namespace millrace::app {

Status CheckTokenizer(const text::Tokenizer& tokenizer, const formats::ModelConfig& config) {
  if (tokenizer.vocab_size() > config.vocab_size) {
    return Error(
        ErrorCode::kMismatch,
        fmt::format(
            "tokenizer.json has ids up to {}, config.json's vocab_size is {}: they do not belong together",
            tokenizer.vocab_size() - 1, config.vocab_size));
  }
  MILLRACE_ASSIGN_OR_RETURN(const text::ControlIds ids, text::ControlIds::Find(tokenizer));
  if (ids.eos != config.eos_token_id) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("the end token of tokenizer.json is {}, config.json's eos_token_id is {}",
                             ids.eos, config.eos_token_id));
  }
  return {};
}

Result<text::Tokenizer> LoadTokenizerOf(const std::filesystem::path& dir,
                                        const formats::ModelConfig& config) {
  MILLRACE_ASSIGN_OR_RETURN(text::Tokenizer tokenizer, text::Tokenizer::Load(dir));
  MILLRACE_RETURN_IF_ERROR(CheckTokenizer(tokenizer, config));
  return tokenizer;
}

}  // namespace millrace::app
