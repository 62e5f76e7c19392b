#pragma once

#include <cstdint>

namespace millrace::text {

// Which of the two chat encodings a checkpoint speaks: DeepSeek-V4-Flash-0731 or DeepSeek-V4.1-Flash.
enum class ChatModel : uint8_t { kV4, kV41 };

}  // namespace millrace::text
