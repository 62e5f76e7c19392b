#pragma once

#include <cstdint>
#include <string>

#include "text/chat_message.h"

namespace millrace::api {

// 128 bits that stand for a text; of a process, because seeded there: nobody can prepare two texts of one
// hash.
struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;

  bool operator==(const Hash128&) const = default;
};

Hash128 HashText(std::string_view text);

// The same for all JSON texts of one value, whatever the order of keys, spacing and spelling of numbers; a
// text that is no JSON stands for itself.
std::string CanonicalArguments(const std::string& arguments);

// A conversation up to some message, as far as it is the same however clients send it: what each message says
// and calls, but no reasoning and no call ids; results that follow each other in any order. Cheap to copy.
class ConversationHash {
 public:
  void Add(const text::ChatMessage& message);
  Hash128 value() const;

 private:
  Hash128 chain_;
  Hash128 results_;  // sums over the results behind the messages of chain_: sums know no order
  uint64_t result_count_ = 0;
};

}  // namespace millrace::api
