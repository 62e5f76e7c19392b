#pragma once

#include <gtest/gtest.h>

#include <boost/json/value.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/ids.h"
#include "formats/json.h"
#include "text/tokenizer.h"

// Helpers of the text tests: golden files, the mini tokenizer of the repository, the released one.
namespace millrace::text {

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

inline boost::json::value ReadJson(const std::filesystem::path& path) {
  auto value = formats::ParseJson(ReadFile(path));
  EXPECT_TRUE(value.ok()) << path << ": " << (value.ok() ? "" : value.error().message());
  return value.ok() ? *std::move(value) : boost::json::value();
}

inline std::string String(const boost::json::value& value) {
  return std::string(value.as_string());
}

inline std::vector<TokenId> Ids(const boost::json::value& value) {
  std::vector<TokenId> ids;
  for (const auto& id : value.as_array()) ids.push_back(static_cast<TokenId>(id.as_int64()));
  return ids;
}

inline std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

inline Tokenizer LoadTokenizer(const std::filesystem::path& dir) {
  auto tokenizer = Tokenizer::Load(dir);
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message());
  return *std::move(tokenizer);
}

inline std::filesystem::path MiniDir() {
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/mini";
}

inline const Tokenizer& MiniTokenizer() {
  static const Tokenizer tokenizer = LoadTokenizer(MiniDir());
  return tokenizer;
}

// Tests against golden files and the released tokenizer; skipped, saying why, where either is missing.
class GoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GoldenDir())) {
      GTEST_SKIP() << GoldenDir() << " does not exist; set MILLRACE_SHARED_DIR";
    }
    if (!std::filesystem::exists(std::filesystem::path(MILLRACE_TOKENIZER_DIR) / "tokenizer.json")) {
      GTEST_SKIP() << MILLRACE_TOKENIZER_DIR << " holds no tokenizer.json; run scripts/fetch-tokenizer "
                   << MILLRACE_TOKENIZER_DIR;
    }
  }

  static std::filesystem::path GoldenDir() { return std::filesystem::path(MILLRACE_SHARED_DIR) / "golden"; }

  static boost::json::array Cases(const char* file) {
    return ReadJson(GoldenDir() / file).at("cases").as_array();
  }

  static const Tokenizer& Released() {
    static const Tokenizer tokenizer = LoadTokenizer(MILLRACE_TOKENIZER_DIR);
    return tokenizer;
  }
};

}  // namespace millrace::text
