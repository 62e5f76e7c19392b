// e^x for the softmax. Included once per instruction set (no #pragma once).

#if defined(MILLRACE_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_EXP_INL_H_
#undef MILLRACE_KERNELS_EXP_INL_H_
#else
#define MILLRACE_KERNELS_EXP_INL_H_
#endif

#include "kernels/dot_tile-inl.h"
#include "kernels/exp_ref.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// ref::ExpNonPositive of every lane, with the same operations in the same order. Highway's own Exp fuses
// multiply-adds only where the instruction set has them, so its bits depend on the machine.
HWY_INLINE VF ExpNonPositive(VF x) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  using ref::ExpConstants;
  const VF shifter = hn::Set(d, ExpConstants::kShifter);
  const VF shifted = Fma(x, hn::Set(d, ExpConstants::kLog2E), shifter);
  const VF k = hn::Sub(shifted, shifter);
  VF r = Fma(k, hn::Set(d, -ExpConstants::kLn2High), x);
  r = Fma(k, hn::Set(d, -ExpConstants::kLn2Low), r);
  VF q = hn::Set(d, ExpConstants::kC6);
  q = Fma(q, r, hn::Set(d, ExpConstants::kC5));
  q = Fma(q, r, hn::Set(d, ExpConstants::kC4));
  q = Fma(q, r, hn::Set(d, ExpConstants::kC3));
  q = Fma(q, r, hn::Set(d, ExpConstants::kC2));
  const VF p = hn::Add(Fma(q, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  // The low bits of `shifted` hold the integer k; 127 + k in the exponent field is 2^k.
  const auto biased = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, ExpConstants::kShifterBits - 127));
  const VF power = hn::BitCast(d, hn::ShiftLeft<23>(biased));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, ExpConstants::kZeroBelow)), hn::Zero(d), hn::Mul(p, power));
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
