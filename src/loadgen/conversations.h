#pragma once

#include <boost/json/array.hpp>

#include <cstdint>
#include <optional>

#include "loadgen/load_session.h"
#include "loadgen/samples.h"
#include "loadgen/summary.h"

namespace millrace::loadgen {

// Conversations side by side that share a system prompt; each turn repeats the server's own answers and adds
// a question.
struct ConversationsOptions {
  int conversations = 16;
  int turns = 4;
  int max_concurrency = 0;  // requests at once; 0: all conversations
  int64_t system_tokens = 1024;
  int64_t input_tokens = 256;  // of each turn's question
  int64_t output_tokens = 128;
  double think_s = 0;  // between an answer and the next question
};

// How much of what a server has seen before it did not compute again.
class ReuseMeter {
 public:
  // A turn of a conversation whose turn before it had `previous_prompt_tokens`; nothing for its first turn.
  void Add(const Usage& usage, std::optional<int64_t> previous_prompt_tokens);

  int64_t later_turns() const { return later_turns_; }
  // Cached tokens over the prompt length of the turn before, all later turns together: 1 says that nothing of
  // an earlier prompt was computed again, above 1 that answers were kept too. The current prompt would be the
  // wrong denominator: its new part cannot be cached, and a long one hides what was lost.
  double reuse() const;
  const Samples& reuse_by_turn() const { return reuse_by_turn_; }
  // Tokens of a later turn computed beyond those it has more than the turn before.
  const Samples& recomputed_tokens() const { return recomputed_tokens_; }
  // Cached tokens of first turns, whose prefix only other conversations can have left.
  const Samples& first_turn_cached() const { return first_turn_cached_; }

 private:
  int64_t later_turns_ = 0;
  int64_t cached_ = 0;
  int64_t previous_ = 0;
  Samples reuse_by_turn_;
  Samples recomputed_tokens_;
  Samples first_turn_cached_;
};

struct ConversationsResult {
  Summary summary;
  ReuseMeter reuse;
  double duration_s = 0;
  int64_t broken = 0;  // conversations that ended early because a request failed
  bool interrupted = false;
};

ConversationsResult RunConversations(LoadSession& session, const ConversationsOptions& options);

}  // namespace millrace::loadgen
