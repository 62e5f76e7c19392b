#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/attention_ref.h"
#include "kernels/quantize.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

// A query with its rows, in the forms that caches hold.
struct Problem {
  int64_t n_heads = 0;
  int64_t head_dim = 0;
  int64_t n_window = 0;
  int64_t n_selected = 0;
  float scale = 0.125f;
  size_t skew = 0;  // elements of padding before every array, which move it off the vector boundaries
  std::vector<float> q;
  std::vector<float> sinks;
  std::vector<uint8_t> window_codes;
  std::vector<uint8_t> window_scales;
  std::vector<uint8_t> latent_codes;
  std::vector<uint8_t> latent_scales;

  int64_t n() const { return n_window + n_selected; }
};

Problem RandomProblem(Random& random, int64_t n_heads, int64_t head_dim, int64_t n_window, int64_t n_selected,
                      size_t skew = 0) {
  Problem p{.n_heads = n_heads,
            .head_dim = head_dim,
            .n_window = n_window,
            .n_selected = n_selected,
            .skew = skew,
            .q = {},
            .sinks = {},
            .window_codes = {},
            .window_scales = {},
            .latent_codes = {},
            .latent_scales = {}};
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& v, int64_t n) {
    v.resize(static_cast<size_t>(n) + skew);
    for (float& x : v) x = normal(random);
  };
  fill(p.q, n_heads * head_dim);
  fill(p.sinks, n_heads);
  const auto quantised = [&](int64_t n, auto quantize, std::vector<uint8_t>& codes, int64_t per_byte,
                             std::vector<uint8_t>& scales, int64_t block) {
    std::vector<float> x;
    fill(x, n * head_dim);
    codes.resize(static_cast<size_t>(n * head_dim / per_byte) + skew);
    scales.resize(static_cast<size_t>(n * head_dim / block) + skew);
    quantize(x.data() + skew, n * head_dim, codes.data() + skew, scales.data() + skew);
  };
  quantised(n_window, QuantizeQ8, p.window_codes, 1, p.window_scales, 32);
  quantised(n_selected, QuantizeQ4b, p.latent_codes, 2, p.latent_scales, 16);
  return p;
}

// The query of a problem with the arrays that it fills.
class Attended {
 public:
  explicit Attended(const Problem& p)
      : weights_(static_cast<size_t>(p.n_heads * AttentionStride(p.n())) + p.skew),
        denominators_(static_cast<size_t>(p.n_heads) + p.skew),
        out_(static_cast<size_t>(p.n_heads * p.head_dim) + p.skew),
        tile_(AttentionTileFloats(p.n_heads, p.head_dim) + p.skew),
        skew_(p.skew) {
    for (int64_t a = 0; a < p.n_selected; ++a) {
      latents_.push_back({.codes = p.latent_codes.data() + skew_ + a * (p.head_dim / 2),
                          .scales = p.latent_scales.data() + skew_ + a * (p.head_dim / 16)});
    }
    query = {.n_heads = p.n_heads,
             .head_dim = p.head_dim,
             .rows = {.window_codes = p.window_codes.data() + skew_,
                      .window_scales = p.window_scales.data() + skew_,
                      .n_window = p.n_window,
                      .selected = latents_.data(),
                      .n_selected = p.n_selected},
             .q = p.q.data() + skew_,
             .sinks = p.sinks.data() + skew_,
             .scale = p.scale,
             .weights = weights_.data() + skew_,
             .denominators = denominators_.data() + skew_,
             .out = out_.data() + skew_};
  }
  Attended(const Attended&) = delete;
  Attended& operator=(const Attended&) = delete;

  std::span<float> tile() { return std::span(tile_).subspan(skew_); }
  std::span<const float> out() const { return std::span(out_).subspan(skew_); }

  AttentionQuery query;

 private:
  std::vector<LatentRow> latents_;
  std::vector<float> weights_;
  std::vector<float> denominators_;
  std::vector<float> out_;
  std::vector<float> tile_;
  size_t skew_;
};

std::vector<float> Attend(const Problem& p) {
  Attended attended(p);
  SparseAttention(attended.query, attended.tile());
  return {attended.out().begin(), attended.out().end()};
}

std::vector<float> Reference(const Problem& p) {
  const Attended attended(p);
  std::vector<float> out;
  for (int64_t h = 0; h < p.n_heads; ++h) {
    const std::vector<float> head = ref::AttentionHead(attended.query, h);
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}

void ExpectReferenceOnEveryTarget(const Problem& p) {
  const std::vector<float> expected = Reference(p);
  ForEachTarget([&] {
    ExpectSameBits(Attend(p), expected);
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << p.n_heads << " heads of " << p.head_dim << ", " << p.n_window << " + " << p.n_selected
                    << " rows";
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
      ExpectReferenceOnEveryTarget(RandomProblem(random, 5, 64, n_window, n - n_window));
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(SparseAttention, EqualsTheReferenceForEveryShape) {
  Random random(2);
  for (const int64_t n_heads : {1, 2, 3, 4, 6, 7, 8, 13}) {
    for (const int64_t head_dim : {32, 64, 96, 128, 160, 224, 288, 512})
      ExpectReferenceOnEveryTarget(RandomProblem(random, n_heads, head_dim, 7, 12));
    if (HasFailure()) return;
  }
}

TEST(SparseAttention, StartsNeedNoMoreThanElementAlignment) {
  Random random(3);
  for (size_t skew = 1; skew < 16; skew += 2)
    ExpectReferenceOnEveryTarget(RandomProblem(random, 6, 96, 9, 41, skew));
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

TEST(SparseAttention, StepsCutAnywhereGiveTheSameBits) {
  Random random(5);
  const Problem p = RandomProblem(random, 7, 160, 21, 50);
  const std::vector<float> expected = Reference(p);
  ForEachTarget([&] {
    for (const int64_t rows : {1, 3, 8, 20, 64}) {
      for (const auto& [channels, heads] : {std::pair(32, 1), {96, 2}, {128, 7}, {160, 3}}) {
        Attended attended(p);
        const AttentionQuery& query = attended.query;
        for (int64_t a = 0; a < p.n(); a += rows)
          AttentionLogits(query, a, std::min(p.n(), a + rows), attended.tile());
        for (int64_t h = 0; h < p.n_heads; h += heads)
          AttentionWeights(query, h, std::min(p.n_heads, h + heads));
        for (int64_t d = 0; d < p.head_dim; d += channels) {
          for (int64_t h = 0; h < p.n_heads; h += heads) {
            AttentionOutputs(query, d, std::min(p.head_dim, d + channels), h, std::min(p.n_heads, h + heads),
                             attended.tile());
          }
        }
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(attended.out(), expected))
            << rows << " rows, " << channels << " channels, " << heads << " heads";
      }
    }
  });
}

TEST(SparseAttention, WritesOverItsOwnQueries) {
  Random random(5);
  const Problem p = RandomProblem(random, 7, 64, 10, 55);
  const std::vector<float> expected = Reference(p);
  ForEachTarget([&] {
    std::vector<float> q = p.q;
    Attended attended(p);
    attended.query.q = q.data();
    attended.query.out = q.data();
    SparseAttention(attended.query, attended.tile());
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(q, expected));
  });
}

// Every code of both forms, subnormals, signed zeros and large scales among them.
TEST(SparseAttention, DecodesEveryCode) {
  Random random(10);
  Problem p = RandomProblem(random, 3, 256, 3, 3);
  for (size_t i = 0; i < p.window_codes.size(); ++i) {
    const auto code = static_cast<uint8_t>(i);
    p.window_codes[i] = (code & 0x7F) == 0x7F ? 0 : code;
  }
  for (size_t i = 0; i < p.latent_codes.size(); ++i) p.latent_codes[i] = static_cast<uint8_t>(i);
  for (size_t i = 0; i < p.window_scales.size(); ++i) p.window_scales[i] = static_cast<uint8_t>(100 + 2 * i);
  for (size_t i = 0; i < p.latent_scales.size(); ++i) p.latent_scales[i] = static_cast<uint8_t>(i * 7 % 127);
  ExpectReferenceOnEveryTarget(p);
}

TEST(SparseAttention, WithoutRowsOnlyTheSinkIsThere) {
  Random random(6);
  const Problem p = RandomProblem(random, 3, 32, 0, 0);
  ForEachTarget([&] { ExpectSameBits(Attend(p), std::vector<float>(3 * 32, 0.0f)); });
}

TEST(SparseAttention, StaysExactUnderExtremeLogits) {
  Random random(7);
  Problem p = RandomProblem(random, 4, 32, 10, 30);
  for (size_t i = 0; i < p.q.size(); i += 3) p.q[i] *= 40;
  for (size_t i = 1; i < p.q.size(); i += 11) p.q[i] = i % 2 == 0 ? -0.0f : 0x1p-140f;
  for (uint8_t& scale : p.window_scales) scale = static_cast<uint8_t>(scale + 5);
  p.sinks = {-1e30f, 500, 0, -80};
  ExpectReferenceOnEveryTarget(p);
  for (const float value : Attend(p)) ASSERT_TRUE(std::isfinite(value));
}

TEST(SparseAttention, NanRowSpoilsEveryHeadAndNothingCrashes) {
  Random random(8);
  const Problem clean = RandomProblem(random, 4, 32, 5, 6);
  Problem window = clean;
  window.window_codes[3 * 32 + 7] = 0xFF;
  Problem latent = clean;
  latent.latent_scales[3] = 0x7F;
  ForEachTarget([&] {
    for (const Problem* p : {&window, &latent}) {
      for (size_t d = 0; const float value : Attend(*p)) {
        // A NaN logit spoils all weights.
        ASSERT_TRUE(std::isnan(value)) << d++;
      }
    }
  });
}

// Independent of the promised order: the softmax of the specification in double.
TEST(SparseAttention, MatchesTheSoftmaxInDouble) {
  Random random(9);
  const Problem p = RandomProblem(random, 8, 512, 128, 512);
  const std::vector<float> out = Attend(p);
  const Attended attended(p);
  std::vector<std::vector<float>> rows;
  for (int64_t a = 0; a < p.n(); ++a) rows.push_back(ref::AttentionRow(attended.query.rows, 512, a));
  for (int64_t h = 0; h < p.n_heads; ++h) {
    const float* q = p.q.data() + h * 512;
    std::vector<double> logits;
    double mx = p.sinks[static_cast<size_t>(h)];
    for (const std::vector<float>& row : rows) {
      double dot = 0;
      for (size_t d = 0; d < 512; ++d) dot += double{q[d]} * row[d];
      logits.push_back(dot * p.scale);
      mx = std::max(mx, logits.back());
    }
    double denominator = std::exp(p.sinks[static_cast<size_t>(h)] - mx);
    for (const double l : logits) denominator += std::exp(l - mx);
    for (size_t d = 0; d < 512; ++d) {
      double sum = 0;
      for (size_t a = 0; a < rows.size(); ++a) sum += std::exp(logits[a] - mx) * rows[a][d];
      ASSERT_NEAR(out[static_cast<size_t>(h) * 512 + d], sum / denominator, 5e-6);
    }
  }
}

}  // namespace
}  // namespace millrace::kernels
