#pragma once

// targets.h with one set more: AVX-512 as of Ice Lake and Zen 4, whose vpdpbusd multiplies bytes and adds
// four products at once and whose vpermi2b looks bytes up in 128. Only integer products and fp8 gain from it;
// the others need not be compiled once more.
#if defined(HWY_TARGETS)
#error "include kernels/targets_int8_dot.h before anything of Highway and instead of kernels/targets.h"
#endif
#define MILLRACE_WITH_INT8_DOT
#include "kernels/targets.h"
