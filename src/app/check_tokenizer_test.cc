#include "app/check_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace millrace::app {
namespace {

const std::filesystem::path kMini = std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/mini";

TEST(CheckTokenizer, TakesTheOneOfTheCheckpoint) {
  const text::Tokenizer tokenizer = *text::Tokenizer::Load(kMini);
  EXPECT_TRUE(CheckTokenizer(tokenizer, *formats::ReadHfConfig(kMini)).ok());
}

TEST(CheckTokenizer, RefusesIdsBeyondTheVocabularyAndAnotherEndToken) {
  const text::Tokenizer tokenizer = *text::Tokenizer::Load(kMini);
  formats::ModelConfig config = *formats::ReadHfConfig(kMini);
  config.vocab_size = 1279;
  Status status = CheckTokenizer(tokenizer, config);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("vocab_size is 1279"), std::string::npos)
      << status.error().message();
  config = *formats::ReadHfConfig(kMini);
  config.eos_token_id = 7;
  status = CheckTokenizer(tokenizer, config);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("eos_token_id is 7"), std::string::npos)
      << status.error().message();
}

}  // namespace
}  // namespace millrace::app
