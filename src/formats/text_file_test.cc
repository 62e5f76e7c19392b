#include "formats/text_file.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/scratch_dir.h"

namespace millrace::formats {
namespace {

using testing::HasSubstr;

TEST(TextFile, IsReadWholeUpToTheLimit) {
  const ScratchDir dir;
  const std::string text(200'000, 'x');
  const auto path = dir.Write("text", text);
  EXPECT_EQ(*ReadTextFile(path, text.size()), text);
  const auto too_large = ReadTextFile(path, text.size() - 1);
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(too_large.error().message(), HasSubstr("more than the 199999 bytes"));
  EXPECT_EQ(*ReadTextFile(dir.Write("empty", ""), 0), "");
}

TEST(TextFile, WhatIsNoFileIsNamed) {
  const ScratchDir dir;
  const auto missing = ReadTextFile(dir.path() / "missing", 10);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("missing does not exist"));
  const auto directory = ReadTextFile(dir.path(), 10);
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().code(), ErrorCode::kIo);
}

}  // namespace
}  // namespace millrace::formats
