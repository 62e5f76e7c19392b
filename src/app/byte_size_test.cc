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
  EXPECT_EQ(*ParseByteSize("96GB", Gigabyte::kBinary), 96 * kGiB);
}

TEST(ParseByteSize, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "GiB", "nan", "inf", "-1", "-4GiB", "0", "4XB", "4GiBs", "1e3", "2000TiB", "4bb"}) {
    const auto parsed = ParseByteSize(text, Gigabyte::kDecimal);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(parsed.error().message(), ::testing::HasSubstr("not in range 1 B to 1 PiB")) << text;
  }
}

}  // namespace
}  // namespace millrace::app
