#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>

#include "formats/safetensors.h"
#include "model/forward.h"
#include "model/forward_testing.h"

// The forward pass against shared/golden/v41: float64 reference values, stored as float32. Tolerances are
// those of the README there.
namespace millrace::model {
namespace {

namespace fs = std::filesystem;
using formats::DType;
using formats::SafetensorsFile;
using formats::TensorInfo;

fs::path GoldenDir(const std::string& name) {
  return fs::path(MILLRACE_SHARED_DIR) / "golden/v41" / name;
}

#define SKIP_WITHOUT_GOLDENS()                                          \
  if (!fs::exists(GoldenDir("v41-micro"))) {                            \
    GTEST_SKIP() << "goldens are not here: " << GoldenDir("v41-micro"); \
  }

// A golden file read into memory, floats and integers apart.
class Golden {
 public:
  explicit Golden(const fs::path& path) : file_(std::move(SafetensorsFile::Open(path)).value()) {}

  bool Has(const std::string& name) const { return file_.Find(name) != nullptr; }
  std::span<const TensorInfo> tensors() const { return file_.tensors(); }
  bool IsFloat(const std::string& name) const { return Info(name).dtype == DType::kF32; }
  std::vector<int64_t> Shape(const std::string& name) const { return Info(name).shape; }

  std::vector<float> Floats(const std::string& name) const { return As<float>(Info(name)); }
  std::vector<int64_t> Integers(const std::string& name) const {
    const TensorInfo& info = Info(name);
    switch (info.dtype) {
      case DType::kI64:
        return As<int64_t>(info);
      case DType::kI32:
        return Widen(As<int32_t>(info));
      case DType::kU8:
        return Widen(As<uint8_t>(info));
      default:
        ADD_FAILURE() << name << " is not an integer tensor";
        return {};
    }
  }
  std::vector<TokenId> Ids(const std::string& prompt) const { return As<TokenId>(Info(prompt + ".ids")); }

 private:
  const TensorInfo& Info(const std::string& name) const {
    const TensorInfo* info = file_.Find(name);
    EXPECT_NE(info, nullptr) << name;
    return *info;
  }
  template <typename T>
  std::vector<T> As(const TensorInfo& info) const {
    const std::span<const std::byte> bytes = file_.Bytes(info);
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  template <typename T>
  static std::vector<int64_t> Widen(const std::vector<T>& in) {
    return {in.begin(), in.end()};
  }

  SafetensorsFile file_;
};

// Keeps everything the forward pass shows.
class RecordingTrace : public LayerTrace {
 public:
  void OnTensor(const std::string& name, std::span<const float> values, std::span<const int64_t>) override {
    floats[name].insert(floats[name].end(), values.begin(), values.end());
  }
  void OnIntegers(const std::string& name, std::span<const int64_t> values,
                  std::span<const int64_t>) override {
    integers[name].insert(integers[name].end(), values.begin(), values.end());
  }

  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::vector<int64_t>> integers;
};

// Feeds every layer the golden output of the layer before, so that each is tested in isolation.
class IsolatingTrace : public RecordingTrace {
 public:
  explicit IsolatingTrace(const Golden& golden) : golden_(golden) {}

  void OnLayerInput(int layer, std::span<float> streams, std::span<float> pre) override {
    if (layer == 0) return;
    const std::string before = "L" + std::to_string(layer - 1) + ".";
    std::ranges::copy(golden_.Floats(before + "streams"), streams.begin());
    std::ranges::copy(golden_.Floats(before + "ffn_pre"), pre.begin());
  }

 private:
  const Golden& golden_;
};

bool EndsWithAny(const std::string& name, std::initializer_list<const char*> suffixes) {
  return std::ranges::any_of(suffixes, [&](const char* suffix) { return name.ends_with(suffix); });
}

bool IsQuantised(const std::string& name) {
  return EndsWithAny(name, {".window_kv", ".index_q", ".index_k", ".compressed_kv"});
}

double ToleranceOf(const std::string& name) {
  const bool coefficient = EndsWithAny(name, {"_pre", "_post", "_comb", ".engram_gate", ".router_w"});
  return coefficient ? 2e-6 : 5e-6;
}

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;  // equal infinities too
    const double d = std::fabs(static_cast<double>(a[i]) - b[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

// Elements that landed on the other side of a rounding boundary: at most one in 10^4, each by one grid step
// (an e4m3 step is up to 1/8 of the element, an e2m1 step up to half of it, or the smallest step of its
// block).
void ExpectQuantisedEqual(const std::string& name, const std::vector<float>& got,
                          const std::vector<float>& want) {
  size_t flips = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    ++flips;
    const double step = std::fabs(static_cast<double>(got[i]) - want[i]);
    const double size = std::max(std::fabs(got[i]), std::fabs(want[i]));
    EXPECT_LE(step, (name.ends_with("window_kv") ? 0.126 : 0.51) * size + 1e-30) << name << "[" << i << "]";
  }
  const size_t allowed = std::max<size_t>(1, got.size() / 10000);
  EXPECT_LE(flips, allowed) << name;
  if (flips > 0) std::printf("%s: %zu of %zu elements flipped\n", name.c_str(), flips, got.size());
}

constexpr Numerics kBothNumerics[] = {Numerics::kReference, Numerics::kFast};

class GoldenModel : public testing::TestWithParam<const char*> {
 protected:
  void Open(int n_threads = 2, Numerics numerics = Numerics::kReference) {
    dir_ = GoldenDir(GetParam());
    model_ = LoadedModel::Open(dir_, n_threads,
                               {.max_batch_tokens = 512, .max_batch_items = 4, .numerics = numerics});
    ASSERT_NE(model_, nullptr);
    golden_.emplace(dir_ / "golden.safetensors");
  }

  fs::path dir_;
  std::unique_ptr<LoadedModel> model_;
  std::optional<Golden> golden_;
};

TEST_P(GoldenModel, EveryTensorOfEveryLayerInIsolation) {
  SKIP_WITHOUT_GOLDENS();
  Open();
  const Golden intermediates(dir_ / "intermediates.safetensors");
  IsolatingTrace trace(intermediates);
  RunPrompt(*model_, golden_->Ids("mid"), 0, &trace);
  size_t compared = 0;
  for (const TensorInfo& info : intermediates.tensors()) {
    const std::string& name = info.name;
    if (name.starts_with("state.")) continue;
    ++compared;
    if (!intermediates.IsFloat(name)) {
      EXPECT_EQ(trace.integers[name], intermediates.Integers(name)) << name;
      continue;
    }
    const std::vector<float> want = intermediates.Floats(name);
    const std::vector<float>& got = trace.floats[name];
    ASSERT_EQ(got.size(), want.size()) << name;
    if (IsQuantised(name)) {
      ExpectQuantisedEqual(name, got, want);
    } else {
      EXPECT_LE(MaxDifference(got, want), ToleranceOf(name)) << name;
    }
  }
  EXPECT_GT(compared, 140u);
}

TEST_P(GoldenModel, StateLeftBehindEqualsTheGoldenState) {
  SKIP_WITHOUT_GOLDENS();
  Open();
  const Golden intermediates(dir_ / "intermediates.safetensors");
  const std::vector<TokenId> ids = golden_->Ids("mid");
  TestSequence sequence(*model_->forward, static_cast<int64_t>(ids.size()));
  std::vector<float> logits(static_cast<size_t>(model_->vocab_size()));
  const BatchItem item{.state = &sequence.state, .tokens = ids};
  model_->forward->Run(std::span(&item, 1), logits);
  EXPECT_EQ(sequence.state.length(), 65);
  const std::vector<int64_t> history = intermediates.Integers("state.ngram_history");
  EXPECT_TRUE(std::ranges::equal(sequence.state.ngram_history, history));
  const LayerPlan& plan = model_->forward->plan();
  for (size_t s = 0; s < plan.kv_sources.size(); ++s) {
    const std::string prefix = "state.L" + std::to_string(plan.kv_sources[s]) + ".partial_";
    if (!intermediates.Has(prefix + "kv")) continue;
    const auto partial = [&](std::span<float> values) {
      return std::vector<float>(values.begin(), values.end());
    };
    const int source = static_cast<int>(s);
    EXPECT_LE(MaxDifference(partial(sequence.state.partial_kv(source)), intermediates.Floats(prefix + "kv")),
              1e-4);
    EXPECT_LE(
        MaxDifference(partial(sequence.state.partial_gate(source)), intermediates.Floats(prefix + "gate")),
        1e-4);
  }
}

// Float32 against float64 over the whole network: flips of single elements spread, so rows are judged
// together.
TEST_P(GoldenModel, WholeNetworkLogits) {
  SKIP_WITHOUT_GOLDENS();
  Open();
  const auto vocab = static_cast<size_t>(model_->vocab_size());
  for (const std::string prompt : {"short", "mid", "long"}) {
    RecordingTrace trace;
    const std::vector<float> logits = RunPrompt(*model_, golden_->Ids(prompt), 0, &trace);
    const std::vector<float> want = golden_->Floats(prompt + ".logits");
    const std::vector<int64_t> positions = golden_->Integers(prompt + ".logits_pos");
    std::vector<double> row_max;
    for (size_t i = 0; i < positions.size(); ++i) {
      double worst = 0;
      for (size_t v = 0; v < vocab; ++v) {
        const double d =
            logits[static_cast<size_t>(positions[i]) * vocab + v] - static_cast<double>(want[i * vocab + v]);
        worst = std::max(worst, std::fabs(d));
      }
      row_max.push_back(worst);
    }
    std::ranges::sort(row_max);
    std::printf("%s %s: row maxima median %.2g, worst %.2g\n", GetParam(), prompt.c_str(),
                row_max[row_max.size() / 2], row_max.back());
    EXPECT_LE(row_max[row_max.size() / 2], 5e-3) << prompt;
    EXPECT_LE(row_max[row_max.size() * 95 / 100], 1e-2) << prompt;

    const std::vector<int64_t> argmax = golden_->Integers(prompt + ".argmax");
    const std::vector<float> gap = golden_->Floats(prompt + ".argmax_gap");
    for (size_t p = 0; p < argmax.size(); ++p) {
      if (gap[p] <= 0.05) continue;
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(p * vocab);
      EXPECT_EQ(std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row, argmax[p])
          << prompt << " " << p;
    }
    EXPECT_EQ(trace.integers["hash_ids"], golden_->Integers(prompt + ".hash_ids")) << prompt;
  }
}

TEST_P(GoldenModel, SelectionsAndExpertsOfEveryPrompt) {
  SKIP_WITHOUT_GOLDENS();
  Open();
  for (const std::string prompt : {"short", "long"}) {
    RecordingTrace trace;
    RunPrompt(*model_, golden_->Ids(prompt), 0, &trace);
    size_t compared = 0;
    for (const auto& [name, values] : trace.integers) {
      if (name == "hash_ids") continue;
      ++compared;
      EXPECT_EQ(values, golden_->Integers(prompt + "." + name)) << prompt << " " << name;
    }
    EXPECT_EQ(compared, 8u + 4u + 1u);
  }
}

TEST_P(GoldenModel, GreedyContinuations) {
  SKIP_WITHOUT_GOLDENS();
  Open();
  for (const std::string prompt : {"short", "mid", "long"}) {
    const std::vector<TokenId> ids = golden_->Ids(prompt);
    const std::vector<int64_t> want = golden_->Integers(prompt + ".greedy");
    TestSequence sequence(*model_->forward, static_cast<int64_t>(ids.size() + want.size()));
    std::vector<float> logits(static_cast<size_t>(model_->vocab_size()));
    std::vector<TokenId> next = ids;
    std::vector<int64_t> got;
    while (got.size() < want.size()) {
      const BatchItem item{.state = &sequence.state, .tokens = next};
      model_->forward->Run(std::span(&item, 1), logits);
      got.push_back(std::ranges::max_element(logits) - logits.begin());
      next = {static_cast<TokenId>(got.back())};
    }
    EXPECT_EQ(got, want) << prompt;
  }
}

TEST_P(GoldenModel, EveryChunkingGivesTheSameBits) {
  SKIP_WITHOUT_GOLDENS();
  for (const Numerics numerics : kBothNumerics) {
    Open(2, numerics);
    for (const std::string prompt : {"short", "mid", "long"}) {
      const std::vector<TokenId> ids = golden_->Ids(prompt);
      const std::vector<float> whole = RunPrompt(*model_, ids, 0);
      for (size_t chunk : {1, 2, 7, 16, 64}) {
        const std::vector<float> chunked = RunPrompt(*model_, ids, chunk);
        EXPECT_EQ(std::memcmp(whole.data(), chunked.data(), whole.size() * sizeof(float)), 0)
            << prompt << " " << chunk;
      }
    }
  }
}

TEST_P(GoldenModel, EveryNumberOfThreadsGivesTheSameBits) {
  SKIP_WITHOUT_GOLDENS();
  for (const Numerics numerics : kBothNumerics) {
    Open(1, numerics);
    const std::vector<TokenId> ids = golden_->Ids("long");
    const std::vector<float> alone = RunPrompt(*model_, ids, 0);
    for (int n_threads : {2, 3, 7}) {
      Open(n_threads, numerics);
      for (size_t chunk : {0, 5}) {
        const std::vector<float> logits = RunPrompt(*model_, ids, chunk);
        EXPECT_EQ(std::memcmp(alone.data(), logits.data(), alone.size() * sizeof(float)), 0)
            << n_threads << " " << chunk;
      }
    }
  }
}

// Three prompts advance together in chunks of different sizes, each against its run alone.
void ExpectBatchedEqualsAlone(LoadedModel& model, const Golden& golden) {
  const auto vocab = static_cast<size_t>(model.vocab_size());
  struct Stream {
    std::vector<TokenId> ids;
    size_t chunk;
    std::unique_ptr<TestSequence> sequence;
    std::vector<float> logits = {};
    size_t done = 0;
  };
  std::vector<Stream> streams;
  for (const auto& [prompt, chunk] : {std::pair{"mid", 9u}, {"long", 31u}, {"short", 1u}, {"mid", 2u}}) {
    const std::vector<TokenId> ids = golden.Ids(prompt);
    streams.push_back(
        {ids, chunk, std::make_unique<TestSequence>(*model.forward, static_cast<int64_t>(ids.size()))});
  }
  while (true) {
    std::vector<BatchItem> batch;
    for (Stream& s : streams) {
      const size_t n = std::min(s.chunk, s.ids.size() - s.done);
      if (n == 0) continue;
      batch.push_back({.state = &s.sequence->state,
                       .tokens = std::span(s.ids).subspan(s.done, n),
                       .logits = LogitsWanted::kAll});
    }
    if (batch.empty()) break;
    size_t rows = 0;
    for (const BatchItem& item : batch) rows += item.tokens.size();
    std::vector<float> logits(rows * vocab);
    model.forward->Run(batch, logits);
    size_t at = 0;
    for (Stream& s : streams) {
      const size_t n = std::min(s.chunk, s.ids.size() - s.done);
      s.logits.insert(s.logits.end(), logits.begin() + static_cast<std::ptrdiff_t>(at * vocab),
                      logits.begin() + static_cast<std::ptrdiff_t>((at + n) * vocab));
      s.done += n;
      at += n;
    }
  }
  for (const Stream& s : streams) {
    const std::vector<float> alone = RunPrompt(model, s.ids, 0);
    ASSERT_EQ(s.logits.size(), alone.size());
    EXPECT_EQ(std::memcmp(alone.data(), s.logits.data(), alone.size() * sizeof(float)), 0) << s.ids.size();
  }
}

TEST_P(GoldenModel, BatchedPromptsGiveTheBitsOfEachAlone) {
  SKIP_WITHOUT_GOLDENS();
  for (const Numerics numerics : kBothNumerics) {
    Open(2, numerics);
    ExpectBatchedEqualsAlone(*model_, *golden_);
  }
}

INSTANTIATE_TEST_SUITE_P(V41, GoldenModel, testing::Values("v41-micro", "v41-small"),
                         [](const auto& param) { return std::string(param.param).substr(4); });

}  // namespace
}  // namespace millrace::model
