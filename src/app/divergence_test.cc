#include "app/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "app/evaluator.h"
#include "formats/safetensors.h"

namespace millrace::app {
namespace {

namespace fs = std::filesystem;

TEST(Divergence, IsTheMeanAndTheWorstOfItsPositions) {
  Divergence divergence(2);
  // p = (1/2, 1/2), q = (1/4, 3/4): KL = ln(2) / 2 + ln(2/3) / 2. The second position is the same in both.
  const std::vector<float> reference = {0, 0, 1, -1};
  const std::vector<float> other = {0, std::log(3.0f), 1, -1};
  divergence.Add(reference, other);
  const double kl = 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3.0);
  EXPECT_EQ(divergence.positions(), 2);
  EXPECT_NEAR(divergence.MeanKl(), kl / 2, 1e-7);
  EXPECT_NEAR(divergence.worst_kl(), kl, 1e-7);
  EXPECT_EQ(divergence.Top1Agreement(), 0.5);  // (0, 0) prefers the first, (0, ln 3) the second
}

TEST(Divergence, SaysWhenALogitIsNotFinite) {
  Divergence divergence(2);
  divergence.Add(std::vector<float>{0, 0}, std::vector<float>{0, std::nanf("")});
  EXPECT_TRUE(std::isnan(divergence.MeanKl()));
  EXPECT_TRUE(std::isnan(divergence.worst_kl()));
}

Divergence FastAgainstReference(const fs::path& dir, int64_t n_prompts, int64_t length) {
  const Result<model::Checkpoint> checkpoint = model::Checkpoint::Open(dir);
  EXPECT_TRUE(checkpoint.ok()) << dir;
  ThreadPool pool(2);
  model::ForwardOptions options{.max_batch_tokens = length, .max_batch_items = 1};
  const auto reference = std::move(Evaluator::Create(*checkpoint, pool, options, length)).value();
  options.numerics = model::Numerics::kFast;
  const auto fast = std::move(Evaluator::Create(*checkpoint, pool, options, length)).value();
  std::mt19937_64 random(1);
  Divergence divergence(checkpoint->config().vocab_size);
  for (int64_t p = 0; p < n_prompts; ++p) {
    std::vector<TokenId> ids(static_cast<size_t>(length));
    for (TokenId& id : ids)
      id = static_cast<TokenId>(random() % static_cast<uint64_t>(checkpoint->config().vocab_size));
    divergence.Add(reference->Logits(ids), fast->Logits(ids));
  }
  std::printf("%s: KL mean %.3g, worst %.3g, top-1 %.4f over %d positions\n", dir.filename().c_str(),
              divergence.MeanKl(), divergence.worst_kl(), divergence.Top1Agreement(),
              static_cast<int>(divergence.positions()));
  return divergence;
}

// The bounds are about twice what was measured; docs/performance.md says why they are not smaller.
TEST(FastNumerics, StayCloseToReferenceOnTheMiniModel) {
  const Divergence found = FastAgainstReference(fs::path(MILLRACE_SOURCE_DIR) / "models/mini", 4, 128);
  EXPECT_GT(found.worst_kl(), 0) << "both ran the same numerics";
  EXPECT_LT(found.MeanKl(), 0.012);
  EXPECT_GT(found.Top1Agreement(), 0.9);
}

// The goldens hold the logits of the vendor's own serving mode, which rounds the same activations to e4m3: a
// yardstick for what the model bears.
TEST(FastNumerics, AreCloserToReferenceThanTheVendorsServingMode) {
  for (const std::string name : {"v41-micro", "v41-small"}) {
    const fs::path dir = fs::path(MILLRACE_SHARED_DIR) / "golden/v41" / name;
    if (!fs::exists(dir)) GTEST_SKIP() << "goldens are not here: " << dir;
    const auto golden = std::move(formats::SafetensorsFile::Open(dir / "golden.safetensors")).value();
    const auto values = [&]<typename T>(const std::string& tensor, std::vector<T> out) {
      const std::span<const std::byte> bytes = golden.Bytes(*golden.Find(tensor));
      out.resize(bytes.size() / sizeof(T));
      std::memcpy(out.data(), bytes.data(), bytes.size());
      return out;
    };
    const std::vector<TokenId> ids = values("mid.ids", std::vector<TokenId>());
    const std::vector<float> reference = values("mid.logits", std::vector<float>());
    const Result<model::Checkpoint> checkpoint = model::Checkpoint::Open(dir);
    ASSERT_TRUE(checkpoint.ok()) << dir;
    ThreadPool pool(2);
    const auto length = static_cast<int64_t>(ids.size());
    const auto fast =
        std::move(Evaluator::Create(
                      *checkpoint, pool,
                      {.max_batch_tokens = length, .max_batch_items = 1, .numerics = model::Numerics::kFast},
                      length))
            .value();
    Divergence ours(checkpoint->config().vocab_size), vendors(checkpoint->config().vocab_size);
    ours.Add(reference, fast->Logits(ids));
    vendors.Add(reference, values("mid.logits_fp8gemm", std::vector<float>()));
    std::printf("%s: KL mean %.3g, of the vendor's mode %.3g\n", name.c_str(), ours.MeanKl(),
                vendors.MeanKl());
    EXPECT_GT(ours.MeanKl(), 0) << name;
    EXPECT_LT(ours.MeanKl(), 0.6 * vendors.MeanKl()) << name;
  }
}

}  // namespace
}  // namespace millrace::app
