// Runs engines of many shapes, each in a fresh process and at the largest context that a budget accepts, and
// holds what they took against their plans: anonymous resident memory and heap at most 2% above, no
// allocation beyond the plan, no account overdrawn. Plans that lack a line must be found out.
//
//   memory_sweep [--seconds S] [--seed N]
//
// Exit status 0 when every promise was kept.

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "base/units.h"
#include "memory/sweep_child.h"
#include "model/checkpoint.h"
#include "model/synthetic_checkpoint.h"

namespace millrace::testing {
namespace {

namespace fs = std::filesystem;

// The child's side of the pipe.
std::string Report(const SweepMeasurement& m) {
  return fmt::format("{} {} {} {} {} {}\n", m.planned_bytes, m.planned_heap_bytes, m.resident_bytes,
                     m.heap_bytes, m.refusals, m.overdrawn_account);
}

std::optional<SweepMeasurement> ParseReport(const std::string& text) {
  std::istringstream words(text);
  SweepMeasurement m;
  if (!(words >> m.planned_bytes >> m.planned_heap_bytes >> m.resident_bytes >> m.heap_bytes >> m.refusals))
    return std::nullopt;
  std::getline(words >> std::ws, m.overdrawn_account);
  return m;
}

// Nothing when the process failed; it said why. A process that is refused memory fails, too.
std::optional<SweepMeasurement> RunInFreshProcess(const std::string& program, const std::string& checkpoint,
                                                  const SweepShape& shape) {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    std::vector<std::string> arguments = {program, "child", checkpoint};
    for (std::string& argument : shape.ToArguments()) arguments.push_back(std::move(argument));
    std::vector<char*> raw;
    for (std::string& argument : arguments) raw.push_back(argument.data());
    raw.push_back(nullptr);
    execv("/proc/self/exe", raw.data());
    _exit(5);
  }
  close(ends[1]);
  std::string output;
  char buffer[512];
  for (ssize_t n = read(ends[0], buffer, sizeof buffer); n > 0; n = read(ends[0], buffer, sizeof buffer))
    output.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) return std::nullopt;
  return ParseReport(output);
}

// The context of `shape` becomes the longest whose plan fits into what its smallest plan takes and `spare`.
void MakeLargest(const formats::ModelConfig& config, uint64_t spare, SweepShape& shape) {
  shape.max_model_len = 256;
  const app::ServingOptions options = OptionsOf(shape);
  const auto smallest = app::PlanServing(config, options, {}, {uint64_t{1} << 40, "the test"});
  if (!smallest.ok()) std::abort();
  const uint64_t budget = smallest->memory.total_bytes() + spare;
  const auto largest = app::PlanServing(config, options, {.max_model_len = true}, {budget, "the test"});
  if (!largest.ok() || !largest->verdict.fits) std::abort();
  shape.max_model_len = *largest->options.load.stepper.max_model_len;
}

class Sweep {
 public:
  Sweep(std::string program, fs::path checkpoint, uint64_t seed)
      : program_(std::move(program)), checkpoint_(std::move(checkpoint)), random_(seed) {
    const auto config = model::Checkpoint::ReadConfig(checkpoint_);
    if (!config.ok()) std::abort();
    config_ = *config;
  }

  // The corners first, then random shapes until `deadline`.
  void Run(std::chrono::steady_clock::time_point deadline) {
    ExpectFound("kv pages");
    ExpectFound("scratch, experts");
    ExpectFound("tensor index");
    for (const SweepShape& corner : Corners()) Measure(corner);
    while (std::chrono::steady_clock::now() < deadline) Measure(RandomShape());
  }

  int failures() const { return failures_; }
  int shapes() const { return shapes_; }

 private:
  static std::vector<SweepShape> Corners() {
    return {{.max_num_seqs = 1, .chunk = 1, .threads = 1},
            {.max_num_seqs = 1, .chunk = 2048, .threads = 2},
            {.max_num_seqs = 16, .chunk = 16, .threads = 2},
            {.max_num_seqs = 16, .chunk = 512, .threads = 1, .fast_numerics = true},
            {.max_num_seqs = 64, .chunk = 256, .threads = 2}};
  }

  SweepShape RandomShape() {
    const auto up_to = [&](uint64_t n) { return 1 + static_cast<int64_t>(random_() % n); };
    return {.max_num_seqs = static_cast<int>(up_to(uint64_t{1} << (random_() % 7))),
            .chunk = up_to(uint64_t{1} << (4 + random_() % 8)),
            .threads = static_cast<int>(up_to(4)),
            .fast_numerics = random_() % 2 == 0};
  }

  void Prepare(SweepShape& shape) {
    // A long context in small chunks takes long. The pool is a whole number of huge pages in any case.
    MakeLargest(config_, shape.chunk >= 64 ? (1 + random_() % 8) * kMiB / 2 : 0, shape);
    shape.seed = random_();
  }

  void Measure(SweepShape shape) {
    Prepare(shape);
    ++shapes_;
    const auto measured = RunInFreshProcess(program_, checkpoint_, shape);
    const std::string violation = measured ? measured->Violation() : "the process failed";
    if (!violation.empty()) ++failures_;
    fmt::print("{:>7} tokens x {:>2}, chunk {:>4}, {} threads, {:<9} ", shape.max_model_len,
               shape.max_num_seqs, shape.chunk, shape.threads, shape.fast_numerics ? "fast" : "reference");
    if (measured) {
      fmt::print("planned {:>10}, resident {:>10}; of heap {:>10}, {:>10}",
                 HumanBytes(measured->planned_bytes), HumanBytes(measured->resident_bytes),
                 HumanBytes(measured->planned_heap_bytes), HumanBytes(measured->heap_bytes));
    }
    fmt::print("  {}\n", violation.empty() ? "ok" : "FAILED: " + violation);
    std::fflush(stdout);
  }

  // A plan without the line `name` must not pass.
  void ExpectFound(const std::string& name) {
    SweepShape shape{.max_num_seqs = 4, .chunk = 512, .threads = 1, .forget = name};
    Prepare(shape);
    const auto measured = RunInFreshProcess(program_, checkpoint_, shape);
    const bool found = !measured || !measured->Violation().empty();
    if (!found) ++failures_;
    fmt::print("a plan without '{}': {}\n", name, found ? "found out" : "FAILED: passes");
  }

  std::string program_;
  fs::path checkpoint_;
  formats::ModelConfig config_;
  std::mt19937_64 random_;
  int failures_ = 0;
  int shapes_ = 0;
};

int Main(std::vector<std::string> arguments) {
  if (arguments.size() > 3 && arguments[1] == "child") {
    const std::vector<std::string> shape(arguments.begin() + 3, arguments.end());
    fmt::print("{}", Report(RunSweepChild(arguments[2], SweepShape::FromArguments(shape))));
    return 0;
  }
  double seconds = 40;
  uint64_t seed = 1;
  for (size_t i = 1; i + 1 < arguments.size(); i += 2) {
    if (arguments[i] == "--seconds") seconds = std::stod(arguments[i + 1]);
    if (arguments[i] == "--seed") seed = std::stoull(arguments[i + 1]);
  }
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  const fs::path dir = fs::temp_directory_path() / fmt::format("millrace-memory-sweep-{}", getpid());
  ThreadPool pool(1);
  const auto written = model::WriteSyntheticCheckpoint({.dir = dir}, pool);
  if (!written.ok()) {
    fmt::print(stderr, "memory_sweep: {}\n", written.error().message());
    return 3;
  }
  Sweep sweep(arguments[0], dir, seed);
  sweep.Run(deadline);
  fs::remove_all(dir);
  fmt::print("{} shapes, {} failures, seed {}\n", sweep.shapes(), sweep.failures(), seed);
  return sweep.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace millrace::testing

int main(int argc, char** argv) {
  return millrace::testing::Main({argv, argv + argc});
}
