#pragma once

#include <cstddef>
#include <cstdint>

// Loops that do one thing only, as fast as the machine can: the limits that benchmarks divide by.
namespace millrace::kernels {

// Bytes that StreamRead takes at a time.
inline constexpr size_t kStreamBlock = 512;

// Reads n bytes in order and returns the exclusive or of them as 64-bit words; n is a multiple of
// kStreamBlock, `data` aligned to 64.
uint64_t StreamRead(const std::byte* data, size_t n);

// Multiply-adds of float32 vectors that wait for nothing: independent sums, all in registers. Returns the
// number of operations done, two a multiply-add and lane.
double FloatPeakLoop(int64_t rounds);

// Dot products of unsigned by signed bytes from registers, by the best sequence of the instruction set.
// Returns the number of operations done, two a pair of bytes.
double Int8PeakLoop(int64_t rounds);

// That sequence in words, and the instruction set that dispatch chooses for float and for byte kernels
// ("AVX3").
const char* Int8PeakSequence();
const char* FloatInstructionSet();
const char* Int8InstructionSet();

}  // namespace millrace::kernels
