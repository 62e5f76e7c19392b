#pragma once

#include "api/conversation_hash.h"
#include "api/finished_choice.h"
#include "api/generation.h"
#include "api/replay_store.h"
#include "text/chat_prompt.h"

namespace millrace::api {

// Puts the answers to one request into the replay store. Store and encoder outlive it. Any thread.
class AnswerRecorder {
 public:
  // `conversation`: the messages that are answered; `starts_in_reasoning` as in ChatPrompt.
  AnswerRecorder(ReplayStore& store, const text::ChatEncoder& encoder, const ConversationHash& conversation,
                 bool starts_in_reasoning)
      : store_(store),
        encoder_(encoder),
        conversation_(conversation),
        starts_in_reasoning_(starts_in_reasoning) {}

  // `choice` is what the client was told of `generation`, which has finished. Leaves out what the tokens say
  // and the client was not told: behind a stop string, or a call cut off.
  void Record(const Generation& generation, const FinishedChoice& choice) const;

 private:
  ReplayStore& store_;
  const text::ChatEncoder& encoder_;
  const ConversationHash conversation_;
  const bool starts_in_reasoning_;
};

}  // namespace millrace::api
