#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/peak_loops.h"
#include "rig/blas.h"
#include "rig/kernel_cases.h"
#include "rig/matrix_copies.h"
#include "rig/rounded_batch.h"
#include "rig/verify.h"

namespace millrace::rig {
namespace {

using kernels::WeightFormat;

constexpr int64_t kSize = 5120;

// fp8 matrices, a different one each run, times some tokens. In `fast`, rounding the activations is part of
// it.
class Fp8MatMul {
 public:
  Fp8MatMul(MatrixCopies& matrices, const kernels::AlignedVector<float>& x, int64_t n_tokens, bool fast,
            Team& team)
      : matrices_(matrices),
        team_(team),
        rounded_(n_tokens, kSize),
        rounded_rows_(rounded_.Rows()),
        y_(static_cast<size_t>(n_tokens * kSize)) {
    product_ = {.x = {.base = x.data(), .stride = kSize},
                .rounded = fast ? &rounded_rows_ : nullptr,
                .n_tokens = n_tokens,
                .y = y_.data(),
                .y_stride = kSize};
  }
  Fp8MatMul(const Fp8MatMul&) = delete;
  Fp8MatMul& operator=(const Fp8MatMul&) = delete;

  void Run() {
    if (product_.rounded != nullptr) rounded_.Round(product_.x.base, team_);
    product_.a = &matrices_.Next();
    team_.Run(std::span(&product_, 1));
  }
  // The matrix of the last run.
  const kernels::WeightMatrix& matrix() const { return *product_.a; }
  const kernels::AlignedVector<float>& y() const { return y_; }
  Status Verify() const { return VerifyProduct(product_, "fp8 matmul"); }
  Contestant AsContestant() {
    return {.run = [this] { Run(); },
            .work = 2.0 * kSize * kSize * static_cast<double>(product_.n_tokens),
            .team = &team_};
  }

 private:
  MatrixCopies& matrices_;
  Team& team_;
  RoundedBatch rounded_;
  kernels::RoundedRows rounded_rows_;
  kernels::AlignedVector<float> y_;
  Product product_;
};

// The same by sgemm, on float32 copies of matrices: two, because one is already larger than most caches.
class SgemmMatMul {
 public:
  SgemmMatMul(const Blas& blas, const kernels::AlignedVector<float>& x, int64_t n_tokens, Team& team)
      : blas_(blas),
        x_(x),
        n_tokens_(n_tokens),
        team_(team),
        memory_(2 * sizeof(float) * kSize * kSize),
        y_(static_cast<size_t>(n_tokens * kSize)) {}
  SgemmMatMul(const SgemmMatMul&) = delete;
  SgemmMatMul& operator=(const SgemmMatMul&) = delete;

  void Decode(const kernels::WeightMatrix& a) {
    for (float* copy : {Copy(0), Copy(1)}) {
      team_.pool().ParallelFor(kSize, [&](size_t row, int) {
        kernels::DecodeRow(a, static_cast<int64_t>(row), copy + row * kSize);
      });
    }
  }
  void Run() {
    blas_.MatMul(Copy(runs_ % 2), kSize, kSize, x_.data(), n_tokens_, y_.data());
    ++runs_;
  }
  // Both sum products in different orders.
  Status ExpectNear(const kernels::AlignedVector<float>& expected) const {
    double error = 0;
    double norm = 0;
    for (size_t i = 0; i < y_.size(); ++i) {
      error += std::pow(static_cast<double>(y_[i]) - expected[i], 2);
      norm += std::pow(static_cast<double>(expected[i]), 2);
    }
    const double relative = std::sqrt(error / norm);
    if (relative < 1e-5) return {};
    return Error(ErrorCode::kMismatch,
                 fmt::format("sgemm and the fp8 matmul differ by {:.2g} of their norm, expected below 1e-5; "
                             "they do not compute the same product",
                             relative));
  }
  Contestant AsContestant() {
    return {.run = [this] { Run(); },
            .work = 2.0 * kSize * kSize * static_cast<double>(n_tokens_),
            .team = &alone_,
            .foreign_threads = team_.size() - 1};
  }

 private:
  float* Copy(size_t i) const { return reinterpret_cast<float*>(memory_.data()) + i * kSize * kSize; }

  const Blas& blas_;
  const kernels::AlignedVector<float>& x_;
  int64_t n_tokens_;
  Team& team_;
  Team alone_{1};
  HugeBuffer memory_;
  kernels::AlignedVector<float> y_;
  size_t runs_ = 0;
};

BenchRow RowOf(const KernelBench& bench, std::string name, int64_t n_tokens, bool fast) {
  return {.name = std::move(name),
          .shape = fmt::format("fp8 {0} x {0}, {1} tokens", kSize, n_tokens),
          .numerics = fast ? "fast" : "reference",
          .instruction_set = fast ? kernels::Bf16InstructionSet() : kernels::Int8InstructionSet(),
          .threads = bench.team.size(),
          .unit = "GFLOP/s"};
}

Status AgainstSgemm(KernelBench& bench, MatrixCopies& matrices, const Result<std::unique_ptr<Blas>>& blas,
                    int64_t n_tokens, std::vector<BenchRow>& rows) {
  const kernels::AlignedVector<float> x = RandomActivations(n_tokens * kSize, 9);
  Fp8MatMul ours(matrices, x, n_tokens, /*fast=*/false, bench.team);
  ours.Run();
  MILLRACE_RETURN_IF_ERROR(ours.Verify());
  Fp8MatMul fast(matrices, x, n_tokens, /*fast=*/true, bench.team);
  fast.Run();
  MILLRACE_RETURN_IF_ERROR(fast.Verify());
  std::vector<Contestant> contestants = {ours.AsContestant(), fast.AsContestant(),
                                         bench.limits.Floats(bench.team)};
  std::optional<SgemmMatMul> sgemm;
  if (blas.ok()) {
    sgemm.emplace(**blas, x, n_tokens, bench.team);
    sgemm->Decode(ours.matrix());
    sgemm->Run();
    MILLRACE_RETURN_IF_ERROR(sgemm->ExpectNear(ours.y()));
    contestants.push_back(sgemm->AsContestant());
  }
  const Contest contest = TimeInTurn(contestants);
  for (const size_t who : {0, 1}) {
    BenchRow row = RowOf(bench, "fp8-sgemm", n_tokens, who == 1);
    row.limit_name = "multiply-add peak";
    row.Take(contest, 1e9, who, 2);
    rows.push_back(row);
    if (blas.ok()) {
      row.limit_name = fmt::format("sgemm, {}", (*blas)->name());
      row.Take(contest, 1e9, who, 3);
    } else {
      row.limit_name = "sgemm";
      row.skipped = blas.error().message();
    }
    rows.push_back(row);
  }
  return {};
}

}  // namespace

Result<std::vector<BenchRow>> Fp8AgainstSgemm(KernelBench& bench) {
  MatrixCopies matrices(WeightFormat::kFp8Tile32, kSize, kSize,
                        CopiesBeyondCaches(WeightFormat::kFp8Tile32, kSize, kSize), bench.team);
  const Result<std::unique_ptr<Blas>> blas = Blas::Load(bench.team.size(), kernels::FloatInstructionSet());
  std::vector<BenchRow> rows;
  for (const int64_t n_tokens : {1, 8, 64, 512})
    MILLRACE_RETURN_IF_ERROR(AgainstSgemm(bench, matrices, blas, n_tokens, rows));
  return rows;
}

Result<std::vector<BenchRow>> AllThreadsOverOne(KernelBench& bench) {
  if (bench.team.size() == 1) {
    return std::vector<BenchRow>{{.name = "threads", .threads = 1, .skipped = "needs --threads 2 or more"}};
  }
  MatrixCopies matrices(WeightFormat::kFp8Tile32, kSize, kSize,
                        CopiesBeyondCaches(WeightFormat::kFp8Tile32, kSize, kSize), bench.team);
  Team one(1);
  std::vector<BenchRow> rows;
  for (const int64_t n_tokens : {64, 1}) {
    const kernels::AlignedVector<float> x = RandomActivations(n_tokens * kSize, 9);
    Fp8MatMul together(matrices, x, n_tokens, /*fast=*/false, bench.team);
    Fp8MatMul alone(matrices, x, n_tokens, /*fast=*/false, one);
    together.Run();
    MILLRACE_RETURN_IF_ERROR(together.Verify());
    alone.Run();
    MILLRACE_RETURN_IF_ERROR(alone.Verify());
    std::vector<Contestant> contestants = {together.AsContestant(), alone.AsContestant()};
    contestants.push_back(n_tokens == 1 ? bench.limits.Read(bench.team) : bench.limits.Floats(bench.team));
    contestants.push_back(n_tokens == 1 ? bench.limits.Read(one) : bench.limits.Floats(one));
    const Contest contest = TimeInTurn(contestants);
    BenchRow row = RowOf(bench, "threads", n_tokens, /*fast=*/false);
    row.Take(contest, 1);
    row.unit = "x one thread";
    row.value = contest.Ratio(0, 1);
    row.limit = contest.Ratio(2, 3);
    row.limit_name = n_tokens == 1 ? "gain of the read bandwidth" : "gain of the multiply-add peak";
    row.ratio = row.value / row.limit;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace millrace::rig
