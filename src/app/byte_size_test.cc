#include "app/byte_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"

namespace millrace::app {
namespace {

TEST(ParseByteSize, ReadsTheUnitsThatOperatorsWrite) {
  const auto decimal = [](const char* text) { return *ParseByteSize(text, Gigabyte::kDecimal); };
  EXPECT_EQ(decimal("84GiB"), 84 * kGiB);
  EXPECT_EQ(decimal("96GB"), 96'000'000'000u);
  EXPECT_EQ(decimal("96 gb"), 96'000'000'000u);
  EXPECT_EQ(decimal("96G"), 96 * kGiB);
  EXPECT_EQ(decimal("4"), 4 * kGiB);
  EXPECT_EQ(decimal("0.5"), kGiB / 2);
  EXPECT_EQ(decimal("121.7GiB"), 130674379980u);
  EXPECT_EQ(decimal("512MiB"), 512 * kMiB);
  EXPECT_EQ(decimal("100b"), 100u);
  EXPECT_EQ(decimal("1PiB"), uint64_t{1} << 50);
  EXPECT_EQ(decimal("0.5PB"), 500'000'000'000'000u);
  EXPECT_EQ(*ParseByteSize("96GB", Gigabyte::kBinary), 96 * kGiB);
}

TEST(ParseByteSize, TellsWhatIsNoSizeFromWhatIsOutOfRange) {
  const auto message = [](const std::string& text) {
    const auto parsed = ParseByteSize(text, Gigabyte::kDecimal);
    return parsed.ok() ? std::string("accepted") : parsed.error().message();
  };
  for (const char* text : {"", "GiB", "nan", "inf", "4XB", "4GiBs", "1e3", "4bb", "1EiB"})
    EXPECT_THAT(message(text), ::testing::HasSubstr("is no size; sizes are written 84GiB")) << text;
  for (const std::string& text : {std::string("-1"), std::string("-4GiB"), std::string("0"),
                                  std::string("2000TiB"), std::string("2PiB"), std::string(400, '9')})
    EXPECT_THAT(message(text), ::testing::HasSubstr("not in range 1 B to 1 PiB")) << text;
}

}  // namespace
}  // namespace millrace::app
