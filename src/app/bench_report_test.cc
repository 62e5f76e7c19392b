#include "app/bench_report.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace millrace::app {
namespace {

rig::BenchRow Row() {
  return {.name = "decode",
          .shape = "32 tokens at depth 512",
          .numerics = "fast",
          .instruction_set = "AVX3",
          .threads = 2,
          .tokens_per_s = 20,
          .value = 16,
          .unit = "GB/s",
          .limit = 20,
          .limit_name = "read bandwidth",
          .ratio = 0.8,
          .spread = 0.05,
          .rounds = 15,
          .clean = 14};
}

TEST(BenchReport, ARowShowsValueLimitAndHowItWasMeasured) {
  const std::string text = RowText(Row());
  for (const char* part : {"decode", "32 tokens at depth 512", "fast", "AVX3", "16 GB/s", "0.800",
                           "read bandwidth, 20", "20 tokens/s", "14 of 15 rounds clean", "spread 5.0 %"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_EQ(text.find("processor time"), std::string::npos);
  rig::BenchRow disturbed = Row();
  disturbed.by_processor_time = true;
  EXPECT_NE(RowText(disturbed).find("by processor time"), std::string::npos);
}

TEST(BenchReport, ASkippedRowSaysWhyAndHasNoFigures) {
  rig::BenchRow row = Row();
  row.skipped = "libopenblas.so.0 is not installed";
  EXPECT_NE(RowText(row).find("skipped: libopenblas.so.0 is not installed"), std::string::npos);
  const rig::BenchRow rows[] = {row};
  const boost::json::object json = BenchJson({}, {}, rows);
  const boost::json::object& object = json.at("rows").as_array().at(0).as_object();
  EXPECT_EQ(object.at("skipped"), "libopenblas.so.0 is not installed");
  EXPECT_FALSE(object.contains("ratio"));
}

TEST(BenchReport, JsonHoldsMachineLimitsAndRows) {
  const rig::BenchRow rows[] = {Row(), Row()};
  rig::MachineLimits limits;
  limits.threads = 2;
  limits.read_bytes_s = 20e9;
  const boost::json::object json = BenchJson({.processor = "A processor", .processors = 2}, limits, rows);
  EXPECT_EQ(json.at("machine").at("processor"), "A processor");
  EXPECT_EQ(json.at("limits").at("read_gb_s"), 20.0);
  ASSERT_EQ(json.at("rows").as_array().size(), 2u);
  const boost::json::object& row = json.at("rows").as_array()[0].as_object();
  EXPECT_EQ(row.at("ratio"), 0.8);
  EXPECT_EQ(row.at("tokens_s"), 20.0);
  EXPECT_EQ(row.at("clean_rounds"), 14);
  EXPECT_EQ(row.at("by_processor_time"), false);
}

}  // namespace
}  // namespace millrace::app
