#pragma once

#include <cstdint>
#include <span>

namespace millrace::app {

// How far one set of next-token distributions is from another, over all positions added.
class Divergence {
 public:
  explicit Divergence(int64_t vocab_size) : vocab_size_(vocab_size) {}

  // Logits [positions, vocab_size] of the same positions. A non-finite logit gives a NaN mean.
  void Add(std::span<const float> reference, std::span<const float> other);

  int64_t positions() const { return positions_; }
  // Kullback-Leibler divergence of the other distributions from the reference's, in nats.
  double MeanKl() const;
  double worst_kl() const { return worst_kl_; }
  // Share of positions at which both give the same token the highest logit (the lowest id on ties).
  double Top1Agreement() const;

 private:
  int64_t vocab_size_;
  int64_t positions_ = 0;
  int64_t same_top1_ = 0;
  double sum_kl_ = 0;
  double worst_kl_ = 0;
};

}  // namespace millrace::app
