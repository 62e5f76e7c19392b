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
//   using Elements = ...;  // what a lane holds of it and of the inputs: FloatElements, a column each
//   void Block(size_t at, VF (&values)[kBlockVecs]) const;  // elements [at, at + kBlockOf<Row>), exactly
//   static constexpr size_t kBlocksAtOnce;  // if 2, Block takes two blocks' values too, in less than twice
//                                           // the time where they are used in registers
//   static constexpr size_t kBits;    // of an element
//   void Prefetch(size_t at) const;   // asks for element `at`, which may lie beyond the row
//   static constexpr bool kIsFloats;  // then const float* floats() const is the row itself
inline constexpr size_t kBlock = 32;  // columns
inline constexpr size_t kBlockVecs = kBlock / kVecLanes;

// Elements that are a float32 column each.
struct FloatElements {
  static constexpr size_t kColumns = 1;          // of an element
  static constexpr size_t kDecodedTogether = 1;  // blocks that are decoded into memory at a time
  // sum + a * b, of every lane.
  static HWY_INLINE VF MulAdd(VF a, VF b, VF sum) { return Fma(a, b, sum); }
  // out[i] = x[i] * scales[i / 32] for i in [0, n); false if a value of out is not exact.
  static HWY_INLINE bool Scale(const float* HWY_RESTRICT x, const float* HWY_RESTRICT scales, size_t n,
                               float* HWY_RESTRICT out) {
    const DF d;
    auto same = hn::Eq(hn::Zero(d), hn::Zero(d));
    for (size_t at = 0; at < n; at += kBlock) {
      const VF scale = hn::Set(d, scales[at / kBlock]);
      const VF inverse = hn::Set(d, 1.0f / scales[at / kBlock]);
      for (size_t i = at; i < at + kBlock; i += kVecLanes) {
        const VF value = hn::LoadU(d, x + i);
        const VF scaled = hn::Mul(value, scale);
        same = hn::And(same, hn::Eq(hn::Mul(scaled, inverse), value));
        hn::StoreU(scaled, d, out + i);
      }
    }
    return hn::AllTrue(d, same);
  }
};

// Elements of a block of 32 columns, and of a whole row.
template <class Row>
inline constexpr size_t kBlockOf = kBlock / Row::Elements::kColumns;
template <class Row>
HWY_INLINE size_t ElementsOf(const WeightMatrix& a) {
  return static_cast<size_t>(a.cols) / Row::Elements::kColumns;
}

// kBlocks blocks of a row, into out[0] and on.
template <size_t kBlocks, class Row>
HWY_INLINE void DecodeBlocks(const Row& row, size_t at, float* HWY_RESTRICT out) {
  constexpr size_t kN = kBlocks * kBlockOf<Row> / kVecLanes;
  VF values[kN];
  row.Block(at, values);
#pragma GCC unroll 4
  for (size_t v = 0; v < kN; ++v) hn::StoreU(values[v], DF(), out + v * kVecLanes);
}

// Elements [begin, end) of a row, from out[0].
template <class Row>
HWY_INLINE void DecodeInto(const Row& row, size_t begin, size_t end, float* HWY_RESTRICT out) {
  constexpr size_t kTogether = Row::Elements::kDecodedTogether;
  size_t at = begin;
  for (; at + kTogether * kBlockOf<Row> <= end; at += kTogether * kBlockOf<Row>)
    DecodeBlocks<kTogether>(row, at, out + at - begin);
  if constexpr (kTogether > 1) {
    if (at < end) DecodeBlocks<1>(row, at, out + at - begin);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
