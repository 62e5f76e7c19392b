#pragma once

#include <string>
#include <string_view>

namespace millrace::text {

// JSON text with every invalid UTF-8 sequence replaced by U+FFFD and every escaped lone surrogate by \ufffd:
// clients cut strings in the middle of characters, and one bad byte must not cost them the conversation.
std::string RepairJsonText(std::string_view text);

}  // namespace millrace::text
