#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/attention_ref.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

// `rows` points into `kv`; a copy goes on pointing into the original.
struct Problem {
  int64_t n_heads = 0;
  int64_t head_dim = 0;
  float scale = 0.125f;
  AttentionRows rows;
  std::vector<float> q;
  std::vector<float> kv;
  std::vector<float> sinks;
};

// `skew` floats of padding move every array off the vector boundaries.
Problem RandomProblem(Random& random, int64_t n_heads, int64_t head_dim, int64_t n_window, int64_t n_selected,
                      size_t skew = 0) {
  Problem p;
  p.n_heads = n_heads;
  p.head_dim = head_dim;
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& v, int64_t n) {
    v.resize(static_cast<size_t>(n) + skew);
    for (float& x : v) x = normal(random);
  };
  fill(p.q, n_heads * head_dim);
  fill(p.kv, (n_window + n_selected) * head_dim);
  fill(p.sinks, n_heads);
  p.rows = {.window = p.kv.data() + skew,
            .n_window = n_window,
            .selected = p.kv.data() + skew + n_window * head_dim,
            .n_selected = n_selected};
  if (n_window == 0) p.rows.window = nullptr;
  if (n_selected == 0) p.rows.selected = nullptr;
  return p;
}

std::vector<float> Attend(const Problem& p, size_t skew = 0) {
  std::vector<float> out(static_cast<size_t>(p.n_heads * p.head_dim) + skew);
  std::vector<float> scratch(AttentionScratchFloats(p.rows.n_window + p.rows.n_selected) + skew);
  SparseAttention(p.q.data() + skew, p.n_heads, p.head_dim, p.rows, p.sinks.data() + skew, p.scale,
                  out.data() + skew, std::span(scratch).subspan(skew));
  return {out.begin() + static_cast<std::ptrdiff_t>(skew), out.end()};
}

std::vector<float> Reference(const Problem& p, size_t skew = 0) {
  std::vector<float> out;
  for (int64_t h = 0; h < p.n_heads; ++h) {
    const std::vector<float> head = ref::AttentionHead(p.q.data() + skew + h * p.head_dim, p.head_dim, p.rows,
                                                       p.sinks[skew + static_cast<size_t>(h)], p.scale);
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}

void ExpectReferenceOnEveryTarget(const Problem& p, size_t skew = 0) {
  const std::vector<float> expected = Reference(p, skew);
  ForEachTarget([&] {
    ExpectSameBits(Attend(p, skew), expected);
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << p.n_heads << " heads of " << p.head_dim << ", " << p.rows.n_window << " + "
                    << p.rows.n_selected << " rows";
    }
  });
}

TEST(ExpNonPositive, StaysWithinItsErrorOfTheTrueValue) {
  double worst = 0;
  // Every 251st float32 from -0 past the smallest result.
  for (uint32_t bits = 0x80000000u; bits < 0xC2B00000u; bits += 251) {
    const auto x = std::bit_cast<float>(bits);
    const double exact = std::exp(static_cast<double>(x));
    const float actual = ref::ExpNonPositive(x);
    if (exact < 0x1p-126) {
      ASSERT_EQ(actual, 0) << x;
      continue;
    }
    const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::abs(actual - exact) / ulp);
  }
  EXPECT_LE(worst, 1.01);
  EXPECT_EQ(ref::ExpNonPositive(0), 1);
  EXPECT_EQ(ref::ExpNonPositive(-std::numeric_limits<float>::infinity()), 0);
  EXPECT_TRUE(std::isnan(ref::ExpNonPositive(std::numeric_limits<float>::quiet_NaN())));
}

TEST(SparseAttention, EqualsTheReferenceForEveryNumberOfRows) {
  Random random(1);
  for (int64_t n = 0; n <= 40; ++n) {
    for (const int64_t n_window : {int64_t{0}, n / 3, n})
      ExpectReferenceOnEveryTarget(RandomProblem(random, 5, 48, n_window, n - n_window));
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(SparseAttention, EqualsTheReferenceForEveryShape) {
  Random random(2);
  for (const int64_t n_heads : {1, 2, 3, 4, 6, 7, 8, 13}) {
    for (const int64_t head_dim : {16, 32, 64, 80, 112, 144, 512})
      ExpectReferenceOnEveryTarget(RandomProblem(random, n_heads, head_dim, 7, 12));
    if (HasFailure()) return;
  }
}

TEST(SparseAttention, StartsNeedNoMoreThanElementAlignment) {
  Random random(3);
  for (size_t skew = 1; skew < 16; skew += 2)
    ExpectReferenceOnEveryTarget(RandomProblem(random, 6, 80, 9, 21, skew), skew);
}

TEST(SparseAttention, HeadAloneEqualsHeadInAnyGroup) {
  Random random(4);
  const Problem all = RandomProblem(random, 9, 64, 20, 33);
  ForEachTarget([&] {
    const std::vector<float> together = Attend(all);
    for (int64_t first = 0; first < 9; ++first) {
      for (int64_t n = 1; first + n <= 9; ++n) {
        Problem part = all;
        part.n_heads = n;
        part.q.assign(all.q.begin() + first * 64, all.q.begin() + (first + n) * 64);
        part.sinks.assign(all.sinks.begin() + first, all.sinks.begin() + first + n);
        const auto at = static_cast<size_t>(first * 64);
        ASSERT_NO_FATAL_FAILURE(
            ExpectSameBits(Attend(part), std::span(together).subspan(at, static_cast<size_t>(n) * 64)));
      }
    }
  });
}

TEST(SparseAttention, WritesOverItsOwnQueries) {
  Random random(5);
  const Problem p = RandomProblem(random, 7, 64, 10, 5);
  const std::vector<float> expected = Reference(p);
  ForEachTarget([&] {
    std::vector<float> q = p.q;
    std::vector<float> scratch(AttentionScratchFloats(15));
    SparseAttention(q.data(), 7, 64, p.rows, p.sinks.data(), p.scale, q.data(), scratch);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(q, expected));
  });
}

TEST(SparseAttention, WithoutRowsOnlyTheSinkIsThere) {
  Random random(6);
  const Problem p = RandomProblem(random, 3, 32, 0, 0);
  ForEachTarget([&] { ExpectSameBits(Attend(p), std::vector<float>(3 * 32, 0.0f)); });
}

TEST(SparseAttention, StaysExactUnderExtremeLogits) {
  Random random(7);
  Problem p = RandomProblem(random, 4, 32, 10, 30);
  for (size_t i = 0; i < p.kv.size(); i += 3) p.kv[i] *= 40;
  for (size_t i = 1; i < p.kv.size(); i += 11) p.kv[i] = i % 2 == 0 ? -0.0f : 0x1p-140f;
  p.sinks = {-1e30f, 500, 0, -80};
  ExpectReferenceOnEveryTarget(p);
  for (const float value : Attend(p)) ASSERT_TRUE(std::isfinite(value));
}

TEST(SparseAttention, NanRowSpoilsEveryHeadAndNothingCrashes) {
  Random random(8);
  Problem p = RandomProblem(random, 4, 32, 5, 6);
  p.kv[3 * 32 + 7] = std::numeric_limits<float>::quiet_NaN();
  ForEachTarget([&] {
    for (const float value : Attend(p)) ASSERT_TRUE(std::isnan(value));
  });
}

// Independent of the promised order: the softmax of the specification in double.
TEST(SparseAttention, MatchesTheSoftmaxInDouble) {
  Random random(9);
  const Problem p = RandomProblem(random, 8, 512, 128, 512);
  const std::vector<float> out = Attend(p);
  for (int64_t h = 0; h < p.n_heads; ++h) {
    const float* q = p.q.data() + h * 512;
    std::vector<double> logits;
    double mx = p.sinks[static_cast<size_t>(h)];
    for (int64_t a = 0; a < 640; ++a) {
      double dot = 0;
      for (size_t d = 0; d < 512; ++d) dot += double{q[d]} * ref::AttentionRow(p.rows, 512, a)[d];
      logits.push_back(dot * p.scale);
      mx = std::max(mx, logits.back());
    }
    double denominator = std::exp(p.sinks[static_cast<size_t>(h)] - mx);
    for (const double l : logits) denominator += std::exp(l - mx);
    for (size_t d = 0; d < 512; ++d) {
      double sum = 0;
      for (int64_t a = 0; a < 640; ++a)
        sum += std::exp(logits[static_cast<size_t>(a)] - mx) * ref::AttentionRow(p.rows, 512, a)[d];
      ASSERT_NEAR(out[static_cast<size_t>(h) * 512 + d], sum / denominator, 5e-6);
    }
  }
}

}  // namespace
}  // namespace millrace::kernels
