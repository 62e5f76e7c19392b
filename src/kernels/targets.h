#pragma once

// The instruction sets that kernels are compiled for. Include before hwy/foreach_target.h.
//
// Left out: the x86 sets between the baseline and AVX2, which no server of the last ten years stops at, and
// SVE, whose vectors have no size at compile time (ARM machines use NEON). All sums use one fused
// multiply-add per element (emulated by the scalar fallback), so every set gives the same bits.
//
// Kernels of integer products and of fp8 include targets_int8_dot.h instead: it adds AVX-512 with the byte
// dot product. A kernel file without that set runs its AVX-512 code on such a machine.
//
// Under sanitizers AVX-512 is left out too: it is the same source as AVX2 with longer vectors, and
// instrumented vector code takes the compiler minutes. The fuzzers, which multiply nothing, leave out AVX2
// too.
#if defined(MILLRACE_WITH_INT8_DOT)
#define HWY_WANT_AVX3_DL
#endif
#include <hwy/detect_targets.h>

#if defined(MILLRACE_FUZZING)
#define MILLRACE_SLOW_TO_BUILD (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)
#elif defined(MILLRACE_SANITIZED)
#define MILLRACE_SLOW_TO_BUILD (HWY_AVX3 | HWY_AVX3_DL)
#else
#define MILLRACE_SLOW_TO_BUILD 0
#endif
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | MILLRACE_SLOW_TO_BUILD)
