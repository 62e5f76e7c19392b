#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "rig/team.h"

namespace millrace::rig {

// kMismatch unless the bits are equal; the message says what was computed and both values.
Status ExpectSameBits(float actual, float expected, std::string_view what);

// Compares some of a finished product's results, first and last rows and tokens among them, with the plain
// reference, bit for bit.
Status VerifyProduct(const Product& product, std::string_view what);

}  // namespace millrace::rig
