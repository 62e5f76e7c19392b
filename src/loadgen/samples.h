#pragma once

#include <cstddef>
#include <vector>

namespace millrace::loadgen {

// Measured values of one kind, for their quantiles.
class Samples {
 public:
  void Add(double value);

  size_t count() const { return values_.size(); }
  // The value below which a share `q` in [0, 1] of the samples lies, interpolated linearly between neighbours
  // as numpy's percentile does; 0 without samples.
  double Quantile(double q) const;
  double Mean() const;
  double Min() const { return Quantile(0); }
  double Max() const { return Quantile(1); }
  double Sum() const { return sum_; }

 private:
  mutable std::vector<double> values_;  // sorted when sorted_
  mutable bool sorted_ = true;
  double sum_ = 0;
};

}  // namespace millrace::loadgen
