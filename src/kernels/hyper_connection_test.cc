#include "kernels/hyper_connection.h"

#include <gtest/gtest.h>

#include "kernels/testing_golden.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

TEST(HyperConnectionMix, MatchesTheGoldens) {
  MILLRACE_SKIP_WITHOUT_GOLDEN("sinkhorn");
  const UnitGolden golden("sinkhorn");
  const auto mixes = golden.Get<float>("mixes");
  const auto scale = golden.Get<float>("scale");
  const auto base = golden.Get<float>("base");
  const HyperConnectionParams params{
      .streams = 4, .sinkhorn_iters = 20, .eps = 1e-6f, .base = base.data(), .scale = scale.data()};
  const size_t rows = mixes.size() / 24;
  std::vector<float> pre(rows * 4);
  std::vector<float> post(rows * 4);
  std::vector<float> comb(rows * 16);
  for (size_t t = 0; t < rows; ++t)
    HyperConnectionMix(params, mixes.data() + t * 24, pre.data() + t * 4, post.data() + t * 4,
                       comb.data() + t * 16);
  const auto expect_near = [](const std::vector<float>& actual, const std::vector<float>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 5e-7f) << "element " << i;
  };
  expect_near(pre, golden.Get<float>("pre"));
  expect_near(post, golden.Get<float>("post"));
  expect_near(comb, golden.Get<float>("comb"));
}

TEST(HyperConnectionMix, ColumnsSumToOneForEveryNumberOfStreams) {
  Random random(1);
  for (int64_t n = 1; n <= kMaxStreams; ++n) {
    const auto size = static_cast<size_t>(n);
    const std::vector<float> base = RandomFloats(random, (2 + size) * size);
    const std::vector<float> m = RandomFloats(random, (2 + size) * size);
    const float scale[3] = {1, 1, 0.1f};
    std::vector<float> pre(size);
    std::vector<float> post(size);
    std::vector<float> comb(size * size);
    HyperConnectionMix(
        {.streams = n, .sinkhorn_iters = 20, .eps = 1e-6f, .base = base.data(), .scale = scale}, m.data(),
        pre.data(), post.data(), comb.data());
    for (size_t k = 0; k < size; ++k) {
      float sum = 0;
      for (size_t j = 0; j < size; ++j) sum += comb[j * size + k];
      EXPECT_NEAR(sum, 1, 1e-5f) << n << " streams, column " << k;
    }
  }
}

TEST(CollapseAndExpandStreams, FollowTheFormulasOnEveryInstructionSet) {
  Random random(2);
  for (int64_t streams = 1; streams <= kMaxStreams; ++streams) {
    for (const int64_t hidden : {1, 31, 63, 64, 65, 128, 130}) {
      const auto m = static_cast<size_t>(streams);
      const auto h = static_cast<size_t>(hidden);
      const std::vector<float> x = RandomFloats(random, m * h);
      const std::vector<float> pre = RandomFloats(random, m);
      const std::vector<float> y = RandomFloats(random, h);
      const std::vector<float> post = RandomFloats(random, m);
      const std::vector<float> comb = RandomFloats(random, m * m);
      std::vector<float> expected_u(h);
      std::vector<float> expected_x(m * h);
      for (size_t d = 0; d < h; ++d) {
        expected_u[d] = pre[0] * x[d];
        for (size_t j = 1; j < m; ++j) expected_u[d] += pre[j] * x[j * h + d];
        for (size_t k = 0; k < m; ++k) {
          expected_x[k * h + d] = post[k] * y[d];
          for (size_t j = 0; j < m; ++j) expected_x[k * h + d] += comb[j * m + k] * x[j * h + d];
        }
      }
      for (const int64_t target : RunnableTargets()) {
        const ScopedTarget scope(target);
        SCOPED_TRACE(testing::Message() << hwy::TargetName(target) << ", " << streams << " x " << hidden);
        std::vector<float> u(h);
        CollapseStreams(x.data(), pre.data(), streams, hidden, u.data());
        ExpectSameBits(u, expected_u);
        std::vector<float> actual_x = x;
        for (const auto& [begin, end] : {std::pair(hidden / 3, hidden), {int64_t{0}, hidden / 3}})
          ExpandStreams(y.data(), post.data(), comb.data(), streams, hidden, begin, end, actual_x.data());
        ExpectSameBits(actual_x, expected_x);
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace millrace::kernels
