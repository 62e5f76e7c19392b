#pragma once

#include <string>
#include <string_view>

namespace millrace {

// Appends `text` as a JSON string literal with its quotes, for log lines: control characters are escaped,
// everything else is passed through, invalid UTF-8 too.
void AppendJsonString(std::string_view text, std::string& out);

}  // namespace millrace
