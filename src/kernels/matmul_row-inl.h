// What a weight format is to MatMul: rows that decode themselves. Included once per instruction set.

#if defined(MILLRACE_KERNELS_MATMUL_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_MATMUL_ROW_INL_H_
#undef MILLRACE_KERNELS_MATMUL_ROW_INL_H_
#else
#define MILLRACE_KERNELS_MATMUL_ROW_INL_H_
#endif

#include "kernels/dot_tile-inl.h"
#include "kernels/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// A format is a class Row, a view of one row of a matrix:
//   Row(const WeightMatrix& a, int64_t row);
//   void Block(size_t at, VF (&values)[kBlockVecs]) const;  // columns [at, at + 32) as floats, exactly
//   static constexpr size_t kBlocksAtOnce;  // if 2, Block takes two blocks' values too, in less than twice
//                                           // the time where they are used in registers
//   static constexpr size_t kBits;    // of a weight
//   void Prefetch(size_t at) const;   // asks for column `at`, which may lie beyond the row
//   static constexpr bool kIsFloats;  // then const float* floats() const is the row itself
inline constexpr size_t kBlock = 32;
inline constexpr size_t kBlockVecs = kBlock / kVecLanes;

// Columns [begin, end) of a row, from out[0].
template <class Row>
HWY_INLINE void DecodeInto(const Row& row, size_t begin, size_t end, float* HWY_RESTRICT out) {
  const DF d;
  for (size_t at = begin; at < end; at += kBlock) {
    VF values[kBlockVecs];
    row.Block(at, values);
#pragma GCC unroll 4
    for (size_t v = 0; v < kBlockVecs; ++v) hn::StoreU(values[v], d, out + at - begin + v * kVecLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
