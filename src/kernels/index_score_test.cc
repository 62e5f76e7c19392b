#include "kernels/index_score.h"

#include <gtest/gtest.h>

#include "kernels/index_score_ref.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

TEST(IndexScores, EqualTheReferenceForEveryShape) {
  Random random(1);
  for (const int64_t dim : {16, 32, 96, 128}) {
    for (const int64_t n_heads : {1, 2, 3, 4, 5, 7, 8, 32}) {
      const std::vector<float> q = RandomFloats(random, static_cast<size_t>(n_heads * dim));
      const std::vector<float> weights = RandomFloats(random, static_cast<size_t>(n_heads));
      const std::vector<float> keys = RandomFloats(random, static_cast<size_t>(150 * dim));
      std::vector<float> expected;
      for (int64_t j = 0; j < 150; ++j)
        expected.push_back(
            ref::IndexScore(q.data(), weights.data(), n_heads, dim, keys.data() + j * dim, 0.25f));
      ForEachTarget([&] {
        for (const int64_t n_keys : {0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 150}) {
          const auto n = static_cast<size_t>(n_keys);
          std::vector<float> scores(n, -1);
          IndexScores(q.data(), weights.data(), n_heads, dim, keys.data(), n_keys, 0.25f, scores.data());
          ASSERT_NO_FATAL_FAILURE(ExpectSameBits(scores, std::span(expected).first(n)))
              << n_heads << " heads of " << dim << ", " << n_keys << " keys";
        }
      });
    }
  }
}

TEST(IndexScores, StartsNeedNoMoreThanElementAlignment) {
  Random random(2);
  for (size_t skew = 1; skew < 16; skew += 2) {
    const std::vector<float> q = RandomFloats(random, skew + 6 * 32);
    const std::vector<float> weights = RandomFloats(random, skew + 6);
    const std::vector<float> keys = RandomFloats(random, skew + 19 * 32);
    std::vector<float> expected;
    for (size_t j = 0; j < 19; ++j)
      expected.push_back(
          ref::IndexScore(q.data() + skew, weights.data() + skew, 6, 32, keys.data() + skew + j * 32, 1.0f));
    ForEachTarget([&] {
      std::vector<float> scores(skew + 19);
      IndexScores(q.data() + skew, weights.data() + skew, 6, 32, keys.data() + skew, 19, 1.0f,
                  scores.data() + skew);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(std::span(scores).subspan(skew), expected));
    });
  }
}

TEST(IndexScores, NegativeProductsCountAsZero) {
  const std::vector<float> q(32, 1.0f);
  const std::vector<float> keys(32, -1.0f);
  const float weight = 3;
  ForEachTarget([&] {
    float score = -1;
    IndexScores(q.data(), &weight, 1, 32, keys.data(), 1, 1.0f, &score);
    EXPECT_EQ(score, 0);
  });
}

TEST(IndexScores, KeyAloneEqualsKeyAmongOthers) {
  Random random(3);
  const std::vector<float> q = RandomFloats(random, 9 * 128);
  const std::vector<float> weights = RandomFloats(random, 9);
  const std::vector<float> keys = RandomFloats(random, 70 * 128);
  ForEachTarget([&] {
    std::vector<float> all(70);
    IndexScores(q.data(), weights.data(), 9, 128, keys.data(), 70, 0.5f, all.data());
    for (size_t j = 0; j < 70; ++j) {
      float alone = 0;
      IndexScores(q.data(), weights.data(), 9, 128, keys.data() + j * 128, 1, 0.5f, &alone);
      ASSERT_EQ(Bits(alone), Bits(all[j])) << "key " << j;
    }
  });
}

}  // namespace
}  // namespace millrace::kernels
