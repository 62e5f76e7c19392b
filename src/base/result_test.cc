#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace millrace {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return Error(ErrorCode::kInvalidArgument, "odd");
  return n / 2;
}

Result<int> Quarter(int n) {
  MILLRACE_ASSIGN_OR_RETURN(const int half, Half(n));
  MILLRACE_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckEven(int n) {
  MILLRACE_RETURN_IF_ERROR(Half(n));
  return {};
}

TEST(Result, PassesValuesAndErrorsThroughTheMacros) {
  EXPECT_EQ(*Quarter(8), 2);
  ASSERT_FALSE(Quarter(6).ok());
  EXPECT_EQ(Quarter(6).error().message(), "odd");
  EXPECT_TRUE(CheckEven(2).ok());
  EXPECT_EQ(CheckEven(3).error().code(), ErrorCode::kInvalidArgument);
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> r = std::make_unique<int>(7);
  std::unique_ptr<int> taken = std::move(r).value();
  EXPECT_EQ(*taken, 7);
}

TEST(Result, ContextGoesInFront) {
  EXPECT_EQ(Error(ErrorCode::kIo, "no such file").In("config.json").message(), "config.json: no such file");
}

TEST(ResultDeathTest, ReadingTheWrongSideEndsTheProcess) {
  EXPECT_DEATH((void)*Half(3), "holds an error");
}

}  // namespace
}  // namespace millrace
