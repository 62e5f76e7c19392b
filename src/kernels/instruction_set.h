#pragma once

#include <string_view>
#include <vector>

// Which of the compiled instruction sets kernels run on. Results do not depend on it.
namespace millrace::kernels {

// AVX3_DL with products of bfloat16 pairs, which only MatMulRounded uses.
inline constexpr std::string_view kBf16InstructionSet = "AVX3_BF16";

// The names of those that this machine has, best first ("AVX3_BF16", "AVX3_DL", "AVX3", "AVX2", ...); views
// of literals.
std::vector<std::string_view> InstructionSets();

// From now on every kernel runs on `name`, or on the best below it that the kernel is compiled for. False,
// and nothing changes, when `name` is not one of InstructionSets(). Not while another thread runs kernels.
bool UseInstructionSet(std::string_view name);

}  // namespace millrace::kernels
