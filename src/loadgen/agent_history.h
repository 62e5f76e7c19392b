#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "loadgen/chat_answer.h"

namespace millrace::loadgen {

// The conversation of an agent as such clients keep it: it grows by answers and tool outputs, and is changed
// behind the server's back as they do.
class AgentHistory {
 public:
  explicit AgentHistory(std::string_view system);

  void AddUser(std::string_view text);
  void AddAnswer(const ChatAnswer& answer);
  // What tools gave: a tool message for each call of the last answer, or, when it called none, a user message
  // that quotes the output. `output` is called for each.
  void AddToolOutputs(const std::function<std::string()>& output);

  // Puts a reminder behind the last message and takes the one before out of its own: the text of an old turn
  // changes.
  void Remind(std::string_view text);
  // Cuts the last message after `n_bytes` bytes, at a space before: an edit near the end. Nothing when it is
  // shorter.
  void ShortenLast(size_t n_bytes);
  // Everything but the system prompt becomes one summary.
  void Compact(std::string_view summary);

  boost::json::array Messages() const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    boost::json::object message;
    std::string reminder;  // shown behind the content
  };
  std::vector<Entry> entries_;
};

// {"type": "function", ...}: the tools that agents of a soak declare.
boost::json::array AgentTools();

}  // namespace millrace::loadgen
