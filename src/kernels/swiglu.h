#pragma once

#include <cstdint>

namespace millrace::kernels {

// out[i] = weight * silu(min(gate[i], limit)) * clamp(up[i], -limit, limit); a limit of 0 switches both
// clamps off (shared/spec/v41-text.md, section 5.6, step 4). out may be gate or up.
void SwiGlu(const float* gate, const float* up, int64_t n, float limit, float weight, float* out);

}  // namespace millrace::kernels
