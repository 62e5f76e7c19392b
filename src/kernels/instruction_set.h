#pragma once

#include <string_view>
#include <vector>

// Which of the compiled instruction sets kernels run on. Results do not depend on it.
namespace millrace::kernels {

// The names of those that this machine has, best first ("AVX3_DL", "AVX3", "AVX2", ...); views of literals.
std::vector<std::string_view> InstructionSets();

// From now on every kernel runs on `name`, or on the best below it that the kernel is compiled for. False,
// and nothing changes, when `name` is not one of InstructionSets(). Not while another thread runs kernels.
bool UseInstructionSet(std::string_view name);

}  // namespace millrace::kernels
