#pragma once

#include <cstddef>
#include <cstdint>

// Loops that do one thing only, as fast as the machine can: the limits that benchmarks divide by.
namespace millrace::kernels {

// StreamRead reads eight parts of its range side by side: the hardware prefetches each of them on its own,
// and one stream alone leaves a quarter of the bandwidth of some machines idle.
inline constexpr size_t kReadStreams = 8;
inline constexpr size_t kStreamBlock = kReadStreams * 64;

// Reads n bytes and returns the exclusive or of them as 64-bit words; n is a multiple of kStreamBlock, `data`
// aligned to 64.
uint64_t StreamRead(const std::byte* data, size_t n);

// Multiply-adds of float32 vectors that wait for nothing: independent sums, all in registers. Returns the
// number of operations done, two a multiply-add and lane.
double FloatPeakLoop(int64_t rounds);

// Dot products of unsigned by signed bytes from registers, by the best sequence of the instruction set.
// Returns the number of operations done, two a pair of bytes.
double Int8PeakLoop(int64_t rounds);

// That sequence in words, and the instruction set that dispatch chooses for float kernels ("AVX3") and for
// those that work on bytes: integer products and fp8 matrices; last, the one that MatMulRounded runs on.
const char* Int8PeakSequence();
const char* FloatInstructionSet();
const char* Int8InstructionSet();
const char* Bf16InstructionSet();

}  // namespace millrace::kernels
