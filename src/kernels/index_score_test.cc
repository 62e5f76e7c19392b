#include "kernels/index_score.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/codecs.h"
#include "kernels/index_score_ref.h"
#include "kernels/quantize.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

struct AlignedBytes {
  explicit AlignedBytes(size_t n) : memory(n + 64) {}
  std::span<std::byte> span() {
    void* at = memory.data();
    size_t space = memory.size();
    std::align(64, memory.size() - 64, at, space);
    return {static_cast<std::byte*>(at), memory.size() - 64};
  }
  std::vector<std::byte> memory;
};

// One query's heads, or keys: codes and scales of `n` vectors.
struct Fp4Vectors {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
};

// All codes, and scales within `spread` powers of two of each other around `middle`.
Fp4Vectors RandomVectors(Random& random, int64_t n, int64_t dim, int spread, int middle = 120) {
  std::uniform_int_distribution<int> code(0, 255);
  std::uniform_int_distribution<int> scale(std::max(middle - spread, 0), middle);
  Fp4Vectors v;
  v.codes.resize(static_cast<size_t>(n * dim / 2));
  v.scales.resize(static_cast<size_t>(n * dim / 32));
  for (uint8_t& c : v.codes) c = static_cast<uint8_t>(code(random));
  for (uint8_t& s : v.scales) s = static_cast<uint8_t>(scale(random));
  return v;
}

struct Problem {
  int64_t n_heads = 0;
  int64_t dim = 0;
  int64_t n_keys = 0;
  float scale = 0.25f;
  Fp4Vectors q = {};
  Fp4Vectors keys = {};
  std::vector<float> weights = {};

  IndexKeys Keys(int64_t begin, int64_t end) const {
    return {.codes = keys.codes.data() + begin * (dim / 2),
            .scales = keys.scales.data() + begin * (dim / 32),
            .n = end - begin};
  }
};

Problem RandomProblem(Random& random, int64_t n_heads, int64_t dim, int64_t n_keys, int q_spread,
                      int key_spread) {
  Problem p{.n_heads = n_heads, .dim = dim, .n_keys = n_keys};
  p.q = RandomVectors(random, n_heads, dim, q_spread);
  p.keys = RandomVectors(random, n_keys, dim, key_spread);
  p.weights = RandomFloats(random, static_cast<size_t>(n_heads));
  return p;
}

std::vector<float> Reference(const Problem& p) {
  std::vector<float> scores;
  for (int64_t j = 0; j < p.n_keys; ++j) {
    const IndexKeys key = p.Keys(j, j + 1);
    scores.push_back(ref::IndexScore(p.q.codes.data(), p.q.scales.data(), p.weights.data(), p.n_heads, p.dim,
                                     key.codes, key.scales, p.scale));
  }
  return scores;
}

// A prepared query and the memory it lives in.
struct Prepared {
  explicit Prepared(const Problem& p)
      : memory(IndexQuery::BytesFor(p.n_heads, p.dim)), query(memory.span(), p.n_heads, p.dim) {
    query.Assign(p.q.codes.data(), p.q.scales.data(), p.weights.data(), p.scale);
  }
  AlignedBytes memory;
  IndexQuery query;
};

std::vector<float> Scores(const Problem& p, std::span<const IndexKeys> runs) {
  const Prepared prepared(p);
  int64_t n = 0;
  for (const IndexKeys& run : runs) n += run.n;
  std::vector<float> scores(static_cast<size_t>(n), -1);
  AlignedBytes scratch(IndexScoreScratchBytes(p.dim));
  IndexScores({&prepared.query, 1}, runs, scores.data(), n, scratch.span());
  return scores;
}

std::vector<float> Scores(const Problem& p) {
  const IndexKeys all = p.Keys(0, p.n_keys);
  return Scores(p, {&all, 1});
}

TEST(IndexScores, EqualTheReferenceForEveryShape) {
  Random random(1);
  for (const int64_t dim : {32, 64, 96, 128, 160, 512}) {
    for (const int64_t n_heads : {1, 2, 3, 4, 5, 7, 8, 9, 16, 32}) {
      const Problem p = RandomProblem(random, n_heads, dim, 70, 2, 2);
      const std::vector<float> expected = Reference(p);
      ForEachTarget([&] { ExpectSameBits(Scores(p), expected); });
      ASSERT_FALSE(HasFailure()) << n_heads << " heads of " << dim;
    }
  }
}

TEST(IndexScores, EqualTheReferenceForEveryNumberOfKeys) {
  Random random(2);
  const Problem p = RandomProblem(random, 32, 128, 150, 3, 3);
  const std::vector<float> expected = Reference(p);
  ForEachTarget([&] {
    for (int64_t n = 0; n <= 150; ++n) {
      const IndexKeys run = p.Keys(0, n);
      ASSERT_NO_FATAL_FAILURE(
          ExpectSameBits(Scores(p, {&run, 1}), std::span(expected).first(static_cast<size_t>(n))))
          << n << " keys";
    }
  });
}

// Scales far apart leave no room to shift them into the bytes; the sums are then rounded, in the stated
// order.
TEST(IndexScores, EqualTheReferenceForEverySpreadOfScales) {
  Random random(3);
  for (const int q_spread : {0, 1, 2, 3, 4, 7, 30, 120}) {
    for (const int key_spread : {0, 2, 3, 4, 9, 120}) {
      const Problem p = RandomProblem(random, 20, 128, 90, q_spread, key_spread);
      const std::vector<float> expected = Reference(p);
      ForEachTarget([&] { ExpectSameBits(Scores(p), expected); });
      ASSERT_FALSE(HasFailure()) << "spreads " << q_spread << ", " << key_spread;
    }
  }
}

TEST(IndexScores, OneWideKeyOrHeadAmongNarrowOnesChangesNoOther) {
  Random random(4);
  Problem p = RandomProblem(random, 32, 128, 100, 1, 1);
  p.keys.scales[37 * 4 + 2] = 90;
  p.q.scales[13 * 4 + 1] = 100;
  const std::vector<float> expected = Reference(p);
  ForEachTarget([&] { ExpectSameBits(Scores(p), expected); });
}

// The largest sums that 8-bit and 16-bit lanes can meet.
TEST(IndexScores, LargestCodesDoNotOverflow) {
  Random random(5);
  for (const uint8_t q_code : {0x77, 0xFF, 0x7F}) {
    for (const uint8_t key_code : {0x77, 0xFF, 0xF7}) {
      for (const int64_t dim : {128, 1024, 1056}) {
        Problem p = RandomProblem(random, 9, dim, 33, 0, 0);
        std::fill(p.q.codes.begin(), p.q.codes.end(), q_code);
        std::fill(p.keys.codes.begin(), p.keys.codes.end(), key_code);
        const std::vector<float> expected = Reference(p);
        ForEachTarget([&] { ExpectSameBits(Scores(p), expected); });
      }
    }
  }
}

TEST(IndexScores, ExtremeScalesKeepTheContract) {
  Random random(6);
  for (const int q_middle : {0, 3, 127, 250, 255}) {
    for (const int key_middle : {0, 3, 127, 250, 255}) {
      Problem p = RandomProblem(random, 9, 128, 40, 0, 0);
      p.q = RandomVectors(random, p.n_heads, p.dim, 4, q_middle);
      p.keys = RandomVectors(random, p.n_keys, p.dim, 4, key_middle);
      const std::vector<float> expected = Reference(p);
      ForEachTarget([&] { ExpectSameBits(Scores(p), expected); });
      ASSERT_FALSE(HasFailure()) << q_middle << ", " << key_middle;
    }
  }
}

TEST(IndexScores, RunsAreOneListOfKeys) {
  Random random(7);
  const Problem p = RandomProblem(random, 32, 128, 200, 2, 2);
  const std::vector<float> expected = Reference(p);
  // Blocks of eight with gaps, as candidates come, one of them cut short; then longer runs and an empty one.
  const std::vector<std::pair<int64_t, int64_t>> ranges = {{8, 16},  {24, 32}, {32, 40},  {64, 72},  {72, 75},
                                                           {80, 80}, {0, 1},   {90, 155}, {150, 200}};
  std::vector<IndexKeys> runs;
  std::vector<float> wanted;
  for (const auto& [begin, end] : ranges) {
    runs.push_back(p.Keys(begin, end));
    wanted.insert(wanted.end(), expected.begin() + begin, expected.begin() + end);
  }
  ForEachTarget([&] { ExpectSameBits(Scores(p, runs), wanted); });
}

TEST(IndexScores, QueryAloneEqualsQueryAmongOthers) {
  Random random(8);
  std::vector<Problem> problems;
  for (int i = 0; i < 5; ++i) problems.push_back(RandomProblem(random, 32, 128, 77, i == 3 ? 9 : 2, 2));
  for (Problem& p : problems) p.keys = problems[0].keys;
  ForEachTarget([&] {
    std::vector<Prepared> prepared;
    std::vector<IndexQuery> queries;
    prepared.reserve(problems.size());
    for (const Problem& p : problems) queries.push_back(prepared.emplace_back(p).query);
    constexpr int64_t kStride = 80;
    std::vector<float> scores(problems.size() * kStride);
    AlignedBytes scratch(IndexScoreScratchBytes(128));
    const IndexKeys all = problems[0].Keys(0, 77);
    IndexScores(queries, {&all, 1}, scores.data(), kStride, scratch.span());
    for (size_t i = 0; i < problems.size(); ++i)
      ExpectSameBits(std::span(scores).subspan(i * kStride, 77), Reference(problems[i]));
  });
}

TEST(IndexScores, NegativeProductsCountAsZero) {
  Problem p{.n_heads = 1, .dim = 32, .n_keys = 1, .scale = 1};
  p.q = {std::vector<uint8_t>(16, 0x22), {127}};     // ones
  p.keys = {std::vector<uint8_t>(16, 0xAA), {127}};  // minus ones
  p.weights = {3};
  ForEachTarget([&] { EXPECT_EQ(Scores(p), std::vector<float>{0}); });
}

// Independent of the stated order: quantised normal values against the specification's formula in double.
TEST(IndexScores, MatchTheFormulaInDouble) {
  Random random(9);
  constexpr int64_t kHeads = 32;
  constexpr int64_t kDim = 128;
  constexpr int64_t kKeys = 64;
  Problem p{.n_heads = kHeads, .dim = kDim, .n_keys = kKeys, .scale = 0.088388346f};
  const auto quantise = [&](int64_t n, Fp4Vectors& v, std::vector<float>& values) {
    std::normal_distribution<float> normal;
    values.resize(static_cast<size_t>(n * kDim));
    for (float& x : values) x = normal(random);
    v.codes.resize(values.size() / 2);
    v.scales.resize(values.size() / 32);
    QuantizeQ4a(values.data(), n * kDim, v.codes.data(), v.scales.data());
    DequantizeQ4a(v.codes.data(), v.scales.data(), n * kDim, values.data());
  };
  std::vector<float> q;
  std::vector<float> keys;
  quantise(kHeads, p.q, q);
  quantise(kKeys, p.keys, keys);
  p.weights = RandomFloats(random, kHeads);
  const std::vector<float> scores = Scores(p);
  for (int64_t j = 0; j < kKeys; ++j) {
    double expected = 0;
    double magnitude = 0;
    for (int64_t h = 0; h < kHeads; ++h) {
      double dot = 0;
      for (int64_t i = 0; i < kDim; ++i)
        dot += double{q[static_cast<size_t>(h * kDim + i)]} * keys[static_cast<size_t>(j * kDim + i)];
      const double term = p.weights[static_cast<size_t>(h)] * std::max(dot, 0.0) * double{p.scale};
      expected += term;
      magnitude += std::abs(term);
    }
    EXPECT_NEAR(scores[static_cast<size_t>(j)], expected, magnitude * 33 * 0x1p-24) << "key " << j;
  }
}

}  // namespace
}  // namespace millrace::kernels
