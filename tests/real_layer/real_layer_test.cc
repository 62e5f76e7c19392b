#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "base/units.h"
#include "model/forward_testing.h"
#include "model/synthetic_checkpoint.h"
#include "real_layer/module_check.h"

// The forward pass at the released dimensions: what passes at toy sizes and fails at real ones (strides,
// scale tiles, 32,768-wide heads, fp4 rows of 2,560 bytes). The checkpoint is the `real-layer` preset: two
// layers of real weights' shapes, 8 experts of which a token takes 6, small engram tables.
//
// Covered, against float64 on the recorded inputs of each module (module_check.h):
//   every token    hash ids, hyper-connection coefficients, collapse, norms, expand, window KV and its Q8,
//   the
//                  compressor at ratio 2 and 1, index keys and Q4a, compressed KV and Q4b, router, selections
//   sampled tokens engram rows, projection and gate, index queries and scores, attention with its output
//                  projections, all eight experts and the shared one, the head: all rows and columns of every
//                  matrix, hence every scale, head and group
// The long sequence passes the window of 128 twelve times over its ring's boundary cases and has more than
// 512 entries at ratio 1; its chunks have odd lengths, and another sequence shares its batches.
//
// Not reached: a pool of more than 16,384 entries, so every block is a candidate, and more than 512 entries
// at ratio 2 (a config with shorter lists on the same weights makes up for both); re-index and reuse layers,
// which two layers leave no room for, and 384 experts: those are the golden checkpoints' part.
namespace millrace::real_layer {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kDiskBytes = uintmax_t{6} << 30;
constexpr double kTolerance = 1;
constexpr model::ForwardOptions kOptions{.max_batch_tokens = 304, .max_batch_items = 2};

// Says what a step took, by the clock and by the processors.
class Stopwatch {
 public:
  void Print(const std::string& what) const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double busy = static_cast<double>(std::clock() - busy_) / CLOCKS_PER_SEC;
    std::printf("%s in %.1f s (%.1f s of processors)\n", what.c_str(), seconds, busy);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::clock_t busy_ = std::clock();
};

// Tokens that look random and are the same everywhere.
std::vector<TokenId> Tokens(uint64_t seed, size_t n, int64_t vocab) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<TokenId>((seed >> 33) % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

class RealLayer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!Obstacle().empty()) return;
    fs::remove_all(dir());
    const Stopwatch watch;
    ThreadPool pool(2);
    const auto written = model::WriteSyntheticCheckpoint(
        {.preset = model::SyntheticPreset::kRealLayer, .seed = 41, .dir = dir() / "checkpoint"}, pool);
    ASSERT_TRUE(written.ok()) << written.error().message();
    watch.Print(HumanBytes(written.value().file_bytes) + " written");
  }
  static void TearDownTestSuite() { fs::remove_all(dir()); }

  void SetUp() override {
    if (!Obstacle().empty()) GTEST_SKIP() << Obstacle();
    ASSERT_TRUE(fs::exists(dir() / "checkpoint/config.json")) << "the checkpoint was not written";
  }

  static fs::path dir() { return fs::path(MILLRACE_REAL_LAYER_DIR); }

  // Why these tests cannot run here, as found before the checkpoint was written; empty when they can.
  static const std::string& Obstacle() {
    static const std::string obstacle = FindObstacle();
    return obstacle;
  }
  static std::string FindObstacle() {
#ifdef MILLRACE_SLOW_BUILD
    return "unoptimised and sanitized builds would take many minutes";
#else
    std::error_code error;
    const fs::space_info space = fs::space(dir().parent_path(), error);
    if (error || space.available >= kDiskBytes) return "";
    return dir().string() + ": less than 6 GiB of disk are free";
#endif
  }

  // The same weights with another config.
  static fs::path Reconfigured(const std::string& name, const formats::ModelConfig& config) {
    const fs::path to = dir() / name;
    fs::create_directories(to);
    for (const fs::directory_entry& entry : fs::directory_iterator(dir() / "checkpoint"))
      if (entry.path().filename() != "config.json")
        fs::create_symlink(entry.path(), to / entry.path().filename());
    std::ofstream(to / "config.json") << formats::WriteHfConfig(config);
    return to;
  }
};

// Checks all recorded sequences and prints the table. Returns how many kinds of outputs were compared.
size_t CheckModules(const fs::path& dir, model::LoadedModel& loaded, const Recorder& recorder,
                    const std::vector<std::vector<int64_t>>& samples, const std::string& title) {
  const Stopwatch watch;
  const formats::ModelConfig& config = loaded.checkpoint->config();
  const StoredWeights weights(dir);
  const Reference64 reference(config, weights, loaded.pool);
  const model::EngramHash tables = model::EngramHash::ForCheckpoint(config, dir).value();
  const EngramHash64 hash(config, tables.classes().class_of);
  Report report;
  for (size_t s = 0; s < samples.size(); ++s) {
    ModuleCheck check(reference, recorder.sequence(s), samples[s], kTolerance, report);
    check.CheckHashIds(hash);
    for (int l = 0; l < static_cast<int>(config.num_hidden_layers); ++l) check.CheckLayer(l);
    check.CheckOutput();
  }
  report.Print(title);
  watch.Print("checked");
  return report.lines().size();
}

// The experts that the sampled tokens of a layer use.
std::set<int64_t> ExpertsUsed(const Recording& recording, int l, const std::vector<int64_t>& sample) {
  std::set<int64_t> used;
  for (const int64_t position : sample) {
    const auto& experts = recording.integers.at("L" + std::to_string(l) + ".router_idx");
    used.insert(experts[static_cast<size_t>(position)].begin(), experts[static_cast<size_t>(position)].end());
  }
  return used;
}

TEST_F(RealLayer, EveryModuleEqualsItsFloat64Recomputation) {
  const fs::path checkpoint = dir() / "checkpoint";
  const auto loaded = model::LoadedModel::Open(checkpoint, 2, kOptions);
  ASSERT_NE(loaded, nullptr);
  const int64_t vocab = loaded->vocab_size();
  const std::vector<TokenId> a = Tokens(1, 560, vocab);
  const std::vector<TokenId> b = Tokens(2, 141, vocab);
  model::TestSequence state_a(*loaded->forward, 560), state_b(*loaded->forward, 141);
  Recorder recorder(*loaded->forward, 2);
  const auto part = [](size_t sequence, model::TestSequence& of, const std::vector<TokenId>& ids,
                       size_t begin, size_t end, bool logits = false) {
    return Recorder::Part{.sequence = sequence,
                          .state = &of.state,
                          .ids = {ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                  ids.begin() + static_cast<std::ptrdiff_t>(end)},
                          .logits = logits};
  };
  const Stopwatch watch;
  recorder.Run({part(0, state_a, a, 0, 203), part(1, state_b, b, 0, 97)});
  recorder.Run({part(1, state_b, b, 97, 104), part(0, state_a, a, 203, 204, true)});
  recorder.Run({part(0, state_a, a, 204, 460), part(1, state_b, b, 104, 141)});
  recorder.Run({part(0, state_a, a, 460, 557)});
  recorder.Run({part(0, state_a, a, 557, 560, true)});
  watch.Print("701 tokens run");

  const std::vector<int64_t> sample_a = {0, 1, 2, 127, 128, 202, 203, 204, 459, 511, 512, 513, 557, 559};
  const std::vector<int64_t> sample_b = {0, 64, 103, 140};
  for (int l = 0; l < 2; ++l) EXPECT_EQ(ExpertsUsed(recorder.sequence(0), l, sample_a).size(), 8u);
  const std::vector<int64_t>& last_set = recorder.sequence(0).integers.at("L1.topk").back();
  EXPECT_EQ(std::ranges::count_if(last_set, [](int64_t j) { return j >= 0; }), 512) << "of 560 entries";
  EXPECT_EQ(CheckModules(checkpoint, *loaded, recorder, {sample_a, sample_b}, "released dimensions"), 28u);
}

// Selections, candidate blocks and the clamp of SwiGLU at both ratios, with lists that 150 tokens outgrow.
TEST_F(RealLayer, SelectionsOfShorterListsEqualTheirRecomputation) {
  formats::ModelConfig config = formats::ReadHfConfig(dir() / "checkpoint").value();
  config.index_topk = 48;
  config.candidate_topk_blocks = 5;
  config.swiglu_limit = 1;
  const fs::path checkpoint = Reconfigured("short-lists", config);
  const auto loaded = model::LoadedModel::Open(checkpoint, 2, kOptions);
  ASSERT_NE(loaded, nullptr);
  const std::vector<TokenId> ids = Tokens(3, 150, loaded->vocab_size());
  model::TestSequence sequence(*loaded->forward, 150);
  Recorder recorder(*loaded->forward, 1);
  for (const auto& [begin, end] : {std::pair{0, 99}, {99, 149}, {149, 150}}) {
    recorder.Run(
        {{.sequence = 0, .state = &sequence.state, .ids = {ids.begin() + begin, ids.begin() + end}}});
  }
  const std::vector<int64_t>& blocks = recorder.sequence(0).integers.at("L1.candidate_blocks").back();
  EXPECT_EQ(std::ranges::count(blocks, 1), 5) << "of 19 blocks";
  EXPECT_EQ(CheckModules(checkpoint, *loaded, recorder, {{48, 98, 99, 149}}, "shorter lists"), 26u);
}

// A sequence that continues where `from` stands.
std::unique_ptr<model::TestSequence> CopyOf(const model::Forward& forward, const model::TestSequence& from,
                                            int64_t max_tokens) {
  auto copy = std::make_unique<model::TestSequence>(forward, max_tokens);
  std::vector<std::byte*> pages = copy->state.pages;
  const size_t n = std::min(pages.size(), from.state.pages.size());
  for (size_t i = 0; i < n; ++i) std::memcpy(pages[i], from.state.pages[i], forward.page_layout().page_bytes);
  copy->state = from.state;
  copy->state.pages = std::move(pages);
  return copy;
}

// Logits of the tokens after `from`, in chunks of `chunk` (0: whole); `beside` shares every batch with a
// token of its own, which stands behind the chunk's.
std::vector<float> Continue(model::Forward& forward, const model::TestSequence& from,
                            const std::vector<TokenId>& ids, size_t chunk, bool beside = false) {
  const auto vocab = static_cast<size_t>(forward.plan().config.vocab_size);
  const auto sequence = CopyOf(forward, from, from.state.length() + static_cast<int64_t>(ids.size()));
  model::TestSequence other(forward, static_cast<int64_t>(ids.size()));
  std::vector<float> logits(ids.size() * vocab);
  const size_t step = chunk == 0 ? ids.size() : chunk;
  for (size_t at = 0; at < ids.size(); at += step) {
    const size_t n = std::min(step, ids.size() - at);
    std::vector<model::BatchItem> items = {{.state = &sequence->state,
                                            .tokens = std::span(ids).subspan(at, n),
                                            .logits = model::LogitsWanted::kAll}};
    if (beside)
      items.push_back(
          {.state = &other.state, .tokens = std::span(ids).first(1), .logits = model::LogitsWanted::kNone});
    forward.Run(items, std::span(logits).subspan(at * vocab, n * vocab));
  }
  return logits;
}

// From the middle of a sequence whose window has wrapped and whose pair is half complete.
TEST_F(RealLayer, ChunksBatchesAndThreadsGiveTheSameBits) {
  const fs::path checkpoint = dir() / "checkpoint";
  const auto loaded = model::LoadedModel::Open(checkpoint, 2, kOptions);
  const auto alone = model::LoadedModel::Open(checkpoint, 1, {.max_batch_tokens = 16, .max_batch_items = 2});
  ASSERT_TRUE(loaded != nullptr && alone != nullptr);
  const std::vector<TokenId> before = Tokens(4, 133, loaded->vocab_size());
  const std::vector<TokenId> ids = Tokens(5, 9, loaded->vocab_size());
  model::TestSequence sequence(*loaded->forward, 133);
  const model::BatchItem item{
      .state = &sequence.state, .tokens = before, .logits = model::LogitsWanted::kNone};
  loaded->forward->Run(std::span(&item, 1), {});

  const std::vector<float> whole = Continue(*loaded->forward, sequence, ids, 0);
  const auto equals_whole = [&](const std::vector<float>& logits) {
    return logits.size() == whole.size() &&
           std::memcmp(whole.data(), logits.data(), whole.size() * sizeof(float)) == 0;
  };
  EXPECT_TRUE(equals_whole(Continue(*loaded->forward, sequence, ids, 1))) << "one token at a time";
  EXPECT_TRUE(equals_whole(Continue(*loaded->forward, sequence, ids, 7))) << "chunks of 7";
  EXPECT_TRUE(equals_whole(Continue(*loaded->forward, sequence, ids, 7, true))) << "two sequences";
  EXPECT_TRUE(equals_whole(Continue(*alone->forward, sequence, ids, 0))) << "one thread";
  EXPECT_TRUE(equals_whole(Continue(*alone->forward, sequence, ids, 2))) << "one thread, chunks of 2";
}

}  // namespace
}  // namespace millrace::real_layer
