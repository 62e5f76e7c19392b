#pragma once

#include <string>
#include <string_view>

namespace millrace::api {

// A custom tool takes free text. The model is shown it as a function of one string, under this key.
inline constexpr std::string_view kCustomToolInputKey = "input";

// The arguments that a custom tool's call has in the prompt.
std::string CustomToolArguments(const std::string& input);

// What a custom tool is given for the complete `arguments` of a call: the text under the key; of arguments of
// another shape their JSON as it is, so that nothing is lost.
std::string CustomToolInput(const std::string& arguments);

// The same while the arguments are being generated: takes the pieces of their JSON text, in whole
// characters, and gives out the beginning of the input as far as it is known. One call, one thread.
class CustomToolInputStream {
 public:
  // The input's next characters; empty while `arguments` has not shown the key or is inside an escape.
  std::string Push(std::string_view arguments);

 private:
  std::string held_;     // not yet given out
  bool inside_ = false;  // of the string
  bool ended_ = false;   // the string has ended, or there is none at the start
};

}  // namespace millrace::api
