#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/catalogue.h"

namespace millrace::model {

// Random but well-scaled weights in the stored formats: a forward pass through many layers stays finite and
// gives varied logits. What each tensor is drawn from is in docs/formats/synthetic-checkpoints.md.
//
// A tensor is cut into blocks of kBlockElements stored elements. A block is a function of the seed, the
// tensor's name and the block's number alone, so blocks may be made in any order, by any number of threads,
// and any part of a checkpoint can be made again. Only IEEE additions, multiplications and divisions are
// used: every machine makes the same bytes. Any thread may use a WeightSource.
class WeightSource {
 public:
  static constexpr uint64_t kBlockElements = uint64_t{1} << 16;

  explicit WeightSource(uint64_t seed);

  static uint64_t BlockCount(const TensorSpec& spec);
  static uint64_t BlockBytes(const TensorSpec& spec, uint64_t block);

  // Writes BlockBytes(spec, block) bytes to the front of `out`.
  void FillBlock(const TensorSpec& spec, uint64_t block, std::span<std::byte> out) const;

 private:
  // Indexed by 16 random bits, so that one draw is one look-up.
  std::vector<float> normal_;      // quantiles of N(0, 1)
  std::vector<uint8_t> fp8_;       // e4m3 codes of a scaled N(0, 1), with every subnormal and both zeros
  std::vector<uint8_t> fp4_pair_;  // two independent e2m1 codes a byte
  double fp8_rms_ = 0;             // of the decoded codes
  double fp4_rms_ = 0;
  uint64_t seed_;
};

}  // namespace millrace::model
