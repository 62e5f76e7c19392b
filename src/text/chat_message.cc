#include "text/chat_message.h"

#include <algorithm>

namespace millrace::text {

bool MessageContent::empty() const {
  return std::ranges::all_of(parts_, [](const ContentPart& part) {
    const std::string* const text = std::get_if<std::string>(&part);
    return text != nullptr && text->empty();
  });
}

bool MessageContent::HasImage() const {
  return std::ranges::any_of(
      parts_, [](const ContentPart& part) { return std::holds_alternative<ImageSource>(part); });
}

std::string MessageContent::Text() const {
  std::string joined;
  bool first = true;
  for (const ContentPart& part : parts_) {
    const std::string* const text = std::get_if<std::string>(&part);
    if (text == nullptr) continue;
    if (!std::exchange(first, false)) joined += "\n\n";
    joined += *text;
  }
  return joined;
}

}  // namespace millrace::text
