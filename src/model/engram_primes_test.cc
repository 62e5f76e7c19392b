#include "model/engram_primes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace millrace::model {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;

formats::ModelConfig EngramConfig(std::vector<int64_t> layers, int64_t vocab, int64_t ngram, int64_t heads) {
  formats::ModelConfig config;
  config.engram_layer_ids = std::move(layers);
  config.engram_vocab_size = vocab;
  config.engram_max_ngram_size = ngram;
  config.engram_n_heads = heads;
  return config;
}

TEST(EngramBuckets, ReleasedSumsAndEnds) {
  const auto layers = ComputeEngramBuckets(EngramConfig({1, 14}, 16'000'000, 4, 8));
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].rows, 384'006'168);
  EXPECT_EQ(layers[1].rows, 384'016'682);
  EXPECT_EQ(layers[0].primes.front(), 16'000'057);
  EXPECT_EQ(layers[0].primes.back(), 16'000'463);
  EXPECT_EQ(layers[1].primes.front(), 16'000'477);
  EXPECT_EQ(layers[1].primes.back(), 16'000'889);
}

TEST(EngramBuckets, EqualTheGoldenPrimesAndOffsets) {
  const std::filesystem::path path =
      std::filesystem::path(MILLRACE_SHARED_DIR) / "golden/v41/units/engram_real.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no golden file " << path;
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const json::object golden = json::parse(text).as_object();

  const auto layers = ComputeEngramBuckets(EngramConfig({1, 14}, 16'000'000, 4, 8));
  for (size_t i = 0; i < layers.size(); ++i) {
    std::vector<int64_t> primes;
    for (const json::value& size : golden.at("primes").at(i).as_array())
      for (const json::value& prime : size.as_array()) primes.push_back(prime.as_int64());
    EXPECT_EQ(layers[i].primes, primes);
    EXPECT_EQ(layers[i].offsets, json::value_to<std::vector<int64_t>>(golden.at("offsets").at(i)));
    EXPECT_EQ(layers[i].rows, golden.at("rows").at(i).as_int64());
  }
}

TEST(EngramBuckets, AVocabularySizeThatIsPrimeIsTheFirstBucket) {
  const auto layers = ComputeEngramBuckets(EngramConfig({0, 1}, 7, 3, 2));
  EXPECT_THAT(layers[0].primes, ElementsAre(7, 11, 13, 17));
  EXPECT_THAT(layers[0].offsets, ElementsAre(0, 7, 18, 31));
  EXPECT_THAT(layers[1].primes, ElementsAre(19, 23, 29, 31));
  EXPECT_EQ(layers[1].rows, 102);
}

TEST(EngramBuckets, SquaresOfPrimesAreNotPrime) {
  EXPECT_THAT(ComputeEngramBuckets(EngramConfig({0}, 24, 2, 1))[0].primes, ElementsAre(29));
  EXPECT_THAT(ComputeEngramBuckets(EngramConfig({0}, 48, 2, 2))[0].primes, ElementsAre(53, 59));
  EXPECT_THAT(ComputeEngramBuckets(EngramConfig({0}, 2, 2, 3))[0].primes, ElementsAre(2, 3, 5));
}

}  // namespace
}  // namespace millrace::model
