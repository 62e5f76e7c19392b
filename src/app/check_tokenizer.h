#pragma once

#include <filesystem>

#include "base/result.h"
#include "formats/hf_config.h"
#include "text/tokenizer.h"

namespace millrace::app {

// Whether tokenizer.json belongs to the checkpoint: no id beyond the model's vocabulary, and the end token is
// the one that config.json names, without which no answer would ever end. kMismatch with both values.
Status CheckTokenizer(const text::Tokenizer& tokenizer, const formats::ModelConfig& config);

// The tokenizer of a checkpoint directory, which belongs to it: CheckTokenizer has passed. Errors of reading
// it are kNotFound and those of text::Tokenizer::Load.
Result<text::Tokenizer> LoadTokenizerOf(const std::filesystem::path& dir, const formats::ModelConfig& config);

}  // namespace millrace::app
