#include "app/divergence.h"

#include <algorithm>
#include <cmath>

namespace millrace::app {
namespace {

double LogSumExp(std::span<const float> logits) {
  const auto largest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - largest);
  return largest + std::log(sum);
}

double KullbackLeibler(std::span<const float> p, std::span<const float> q) {
  const double p_norm = LogSumExp(p);
  const double q_norm = LogSumExp(q);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - p_norm;
    kl += std::exp(log_p) * (log_p - (static_cast<double>(q[i]) - q_norm));
  }
  return kl;
}

}  // namespace

void Divergence::Add(std::span<const float> reference, std::span<const float> other) {
  const auto vocab = static_cast<size_t>(vocab_size_);
  for (size_t at = 0; at + vocab <= reference.size(); at += vocab) {
    const std::span<const float> p = reference.subspan(at, vocab);
    const std::span<const float> q = other.subspan(at, vocab);
    const double kl = KullbackLeibler(p, q);
    sum_kl_ += kl;
    worst_kl_ = std::isnan(kl) ? kl : std::max(worst_kl_, kl);
    same_top1_ += std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin();
    ++positions_;
  }
}

double Divergence::MeanKl() const {
  return positions_ == 0 ? 0 : sum_kl_ / static_cast<double>(positions_);
}

double Divergence::Top1Agreement() const {
  return positions_ == 0 ? 1 : static_cast<double>(same_top1_) / static_cast<double>(positions_);
}

}  // namespace millrace::app
