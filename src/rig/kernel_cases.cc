#include "rig/kernel_cases.h"

namespace millrace::rig {

std::span<const KernelCase> KernelCases() {
  static constexpr KernelCase kCases[] = {
      {"expert-up", "gate and up of 6 fp4 experts for one token, weights from memory", ExpertUpMatVec},
      {"expert-down", "down of 6 fp4 experts for one token, weights from memory", ExpertDownMatVec},
      {"fp8-square", "fp8 matrix 5120 x 5120 times one vector, weights from memory", SquareFp8MatVec},
      {"fp8-query", "fp8 matrix 1280 -> 32768 times one vector, weights from memory", QueryFp8MatVec},
      {"head", "bf16 matrix 5120 -> 32768 times one vector, weights from memory", HeadMatVec},
      {"shared-fp4", "gate and up of 6 fp4 experts for 1, 2 and 4 tokens that share each read",
       SharedExpertReads},
      {"shared-fp8", "fp8 matrix 5120 x 5120 for 1, 2 and 4 tokens that share each read", SharedFp8Reads},
      {"experts-prefill", "48 fp4 experts with 8 tokens each, gather and scatter included", ExpertsInPrefill},
      {"fp8-sgemm", "fp8 matmul 5120 x 5120 beside OpenBLAS's sgemm", Fp8AgainstSgemm},
      {"threads", "matmul and mat-vec with all threads over one", AllThreadsOverOne},
      {"index", "scores of 256K index keys and the best 512 of them", IndexScoring},
      {"attention", "64 heads over a full window and 512 chosen entries of a long context", DecodeAttention},
  };
  return kCases;
}

}  // namespace millrace::rig
