#include <fmt/format.h>

#include <vector>

#include "kernels/peak_loops.h"
#include "rig/kernel_cases.h"
#include "rig/matrix_copies.h"
#include "rig/quantized_batch.h"
#include "rig/rounded_batch.h"
#include "rig/verify.h"

namespace millrace::rig {
namespace {

using kernels::WeightFormat;

struct Shape {
  WeightFormat format;
  int64_t rows;
  int64_t cols;
  int64_t matrices;    // multiplied in one loop, as a decode step does
  int64_t tokens = 1;  // of as many sequences
};

// Matrices times the activations of one token or a few, which are the same for all matrices.
class MatVec {
 public:
  MatVec(const Shape& shape, bool fast, Team& team)
      : quantizes_(fast && shape.format == WeightFormat::kFp4Row32),
        rounds_(fast && shape.format == WeightFormat::kFp8Tile32),
        team_(team),
        x_(RandomActivations(shape.tokens * shape.cols, 7)),
        codes_(shape.tokens, shape.cols),
        rounded_(shape.tokens, shape.cols),
        y_(static_cast<size_t>(shape.matrices * shape.tokens * shape.rows)),
        products_(static_cast<size_t>(shape.matrices)) {
    codes_.Quantize(x_.data(), team);
    rows_ = codes_.Rows(0);
    rounded_rows_ = rounded_.Rows();
    for (size_t i = 0; i < products_.size(); ++i) {
      products_[i] = {.x = {.base = x_.data(), .stride = shape.cols},
                      .codes = quantizes_ ? &rows_ : nullptr,
                      .rounded = rounds_ ? &rounded_rows_ : nullptr,
                      .n_tokens = shape.tokens,
                      .y = y_.data() + static_cast<int64_t>(i) * shape.tokens * shape.rows,
                      .y_stride = shape.rows};
    }
  }
  MatVec(const MatVec&) = delete;
  MatVec& operator=(const MatVec&) = delete;

  // In `fast`, rounding the activations is part of it.
  void Run(MatrixCopies& matrices) {
    if (quantizes_) codes_.Quantize(x_.data(), team_);
    if (rounds_) rounded_.Round(x_.data(), team_);
    for (Product& product : products_) product.a = &matrices.Next();
    team_.Run(products_);
  }
  Status Verify(std::string_view what) const {
    for (const Product& product : products_) MILLRACE_RETURN_IF_ERROR(VerifyProduct(product, what));
    return {};
  }

 private:
  bool quantizes_;
  bool rounds_;
  Team& team_;
  kernels::AlignedVector<float> x_;
  QuantizedBatch codes_;
  kernels::QuantizedRows rows_;
  RoundedBatch rounded_;
  kernels::RoundedRows rounded_rows_;
  kernels::AlignedVector<float> y_;
  std::vector<Product> products_;
};

Result<BenchRow> Measure(KernelBench& bench, std::string name, const Shape& shape, bool fast,
                         MatrixCopies& matrices) {
  MatVec work(shape, fast, bench.team);
  work.Run(matrices);
  MILLRACE_RETURN_IF_ERROR(work.Verify(name));
  const double bytes = static_cast<double>(shape.matrices * StoredBytes(matrices[0]));
  const Contestant contestants[] = {{.run = [&] { work.Run(matrices); }, .work = bytes, .team = &bench.team},
                                    bench.limits.Read(bench.team)};
  std::string what =
      fmt::format("{} {} -> {}, {} a loop", FormatName(shape.format), shape.cols, shape.rows, shape.matrices);
  if (shape.tokens > 1) what += fmt::format(", {} tokens", shape.tokens);
  const bool fp8 = shape.format == WeightFormat::kFp8Tile32;
  BenchRow row{.name = std::move(name),
               .shape = std::move(what),
               .numerics = fast ? "fast" : "reference",
               .instruction_set = fast && fp8   ? kernels::Bf16InstructionSet()
                                  : fast || fp8 ? kernels::Int8InstructionSet()
                                                : kernels::FloatInstructionSet(),
               .threads = bench.team.size(),
               .unit = "GB/s",
               .limit_name = "read bandwidth"};
  row.Take(TimeInTurn(contestants), 1e9);
  return row;
}

Result<std::vector<BenchRow>> MeasureAll(KernelBench& bench, const std::string& name, const Shape& shape) {
  MatrixCopies matrices(shape.format, shape.rows, shape.cols,
                        CopiesBeyondCaches(shape.format, shape.rows, shape.cols), bench.team);
  std::vector<BenchRow> rows;
  MILLRACE_ASSIGN_OR_RETURN(BenchRow reference, Measure(bench, name, shape, false, matrices));
  rows.push_back(std::move(reference));
  if (shape.format == WeightFormat::kFp4Row32 || shape.format == WeightFormat::kFp8Tile32) {
    MILLRACE_ASSIGN_OR_RETURN(BenchRow fast, Measure(bench, name, shape, true, matrices));
    rows.push_back(std::move(fast));
  }
  return rows;
}

// The step of a few sequences together: as many bytes as for one.
Result<std::vector<BenchRow>> MeasureTokens(KernelBench& bench, const std::string& name, Shape shape) {
  MatrixCopies matrices(shape.format, shape.rows, shape.cols,
                        CopiesBeyondCaches(shape.format, shape.rows, shape.cols), bench.team);
  std::vector<BenchRow> rows;
  for (const int64_t tokens : {1, 2, 4}) {
    shape.tokens = tokens;
    MILLRACE_ASSIGN_OR_RETURN(BenchRow row, Measure(bench, name, shape, /*fast=*/true, matrices));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Result<std::vector<BenchRow>> ExpertUpMatVec(KernelBench& bench) {
  return MeasureAll(bench, "expert-up",
                    {.format = WeightFormat::kFp4Row32, .rows = 2304, .cols = 5120, .matrices = 12});
}

Result<std::vector<BenchRow>> ExpertDownMatVec(KernelBench& bench) {
  return MeasureAll(bench, "expert-down",
                    {.format = WeightFormat::kFp4Row32, .rows = 5120, .cols = 2304, .matrices = 6});
}

Result<std::vector<BenchRow>> SquareFp8MatVec(KernelBench& bench) {
  return MeasureAll(bench, "fp8-square",
                    {.format = WeightFormat::kFp8Tile32, .rows = 5120, .cols = 5120, .matrices = 1});
}

Result<std::vector<BenchRow>> QueryFp8MatVec(KernelBench& bench) {
  return MeasureAll(bench, "fp8-query",
                    {.format = WeightFormat::kFp8Tile32, .rows = 32768, .cols = 1280, .matrices = 1});
}

Result<std::vector<BenchRow>> SharedExpertReads(KernelBench& bench) {
  return MeasureTokens(bench, "shared-fp4",
                       {.format = WeightFormat::kFp4Row32, .rows = 2304, .cols = 5120, .matrices = 12});
}

Result<std::vector<BenchRow>> SharedFp8Reads(KernelBench& bench) {
  return MeasureTokens(bench, "shared-fp8",
                       {.format = WeightFormat::kFp8Tile32, .rows = 5120, .cols = 5120, .matrices = 1});
}

Result<std::vector<BenchRow>> HeadMatVec(KernelBench& bench) {
  return MeasureAll(bench, "head",
                    {.format = WeightFormat::kBf16, .rows = 32768, .cols = 5120, .matrices = 1});
}

}  // namespace millrace::rig
