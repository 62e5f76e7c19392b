#include "text/reasoning_splitter.h"

#include <utility>

namespace millrace::text {

ReasoningSplitter::Delta ReasoningSplitter::Push(TokenId id) {
  if (id == ids_.think_end) {
    if (!in_reasoning_) return {};  // a stray one is absorbed
    return SwitchTo(false);
  }
  if (id == ids_.think_begin && at_start_) {
    if (in_reasoning_) return {};  // repeats what the prompt ended with
    return SwitchTo(true);         // the model reasons although the prompt said not to, or again
  }
  // Here the two are no markers but words of the text.
  const bool is_text = id == ids_.think_begin || id == ids_.dsml || !tokenizer_.IsControl(id);
  if (!is_text) return {};
  at_start_ = false;
  return Side(decoder_.PushBytes(tokenizer_.TokenBytes(id)));
}

ReasoningSplitter::Delta ReasoningSplitter::Side(std::string text) const {
  Delta delta;
  (in_reasoning_ ? delta.reasoning : delta.content) = std::move(text);
  return delta;
}

ReasoningSplitter::Delta ReasoningSplitter::SwitchTo(bool reasoning) {
  Delta delta = Flush();
  in_reasoning_ = reasoning;
  at_start_ = true;
  return delta;
}

}  // namespace millrace::text
