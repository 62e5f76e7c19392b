#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/conversation_hash.h"
#include "base/ids.h"
#include "base/ledger.h"
#include "text/chat_message.h"

namespace millrace::api {

// One answer as it was generated and as its client was told of it.
struct GeneratedAnswer {
  // From behind the header's think token to in front of the end token.
  std::vector<TokenId> ids;
  bool started_in_reasoning = false;
  std::string reasoning;
  std::string content;
  std::vector<text::ToolCall> calls;  // ids without a dialect's prefix, names as written, whole arguments
};

// Remembers what was generated, so that the prompt of the next turn repeats it token for token although the
// client sends it back reordered, re-serialised, under other call ids or without its reasoning: another
// spelling would be another prefix, and all behind it would be computed again. The least recently used
// answers are forgotten. Any thread.
class ReplayStore {
 public:
  // `account` (optional, outlives the store) holds what it remembers.
  explicit ReplayStore(size_t max_bytes, MemoryAccount* account = nullptr)
      : max_bytes_(max_bytes), account_(account) {}
  ~ReplayStore();
  ReplayStore(const ReplayStore&) = delete;
  ReplayStore& operator=(const ReplayStore&) = delete;

  // `conversation`: all messages in front of the answer.
  void Add(const ConversationHash& conversation, GeneratedAnswer answer);

  // Gives each assistant message that is known its generated_ids: one found by its call ids or by the
  // conversation up to it, which says and calls the same and has the same reasoning or none. Returns the hash
  // of all messages.
  ConversationHash Restore(std::vector<text::ChatMessage>& messages);

  struct Stats {
    uint64_t hits = 0;  // assistant messages that were known
    uint64_t misses = 0;
    size_t answers = 0;
    size_t bytes = 0;
  };
  Stats stats() const;

 private:
  struct HashOf {
    size_t operator()(const Hash128& hash) const { return hash.low; }
  };
  struct Entry {
    std::shared_ptr<const GeneratedAnswer> answer;
    std::vector<Hash128> keys;
    size_t bytes = 0;
  };
  using Entries = std::list<Entry>;  // most recently used first

  std::shared_ptr<const GeneratedAnswer> Find(const Hash128& key);
  std::shared_ptr<const GeneratedAnswer> FindFor(const text::ChatMessage& message,
                                                 const ConversationHash& through_message);
  void Forget(Entries::iterator entry);

  const size_t max_bytes_;
  MemoryAccount* const account_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Entries entries_;
  std::unordered_map<Hash128, Entries::iterator, HashOf> by_key_;
  size_t bytes_ = 0;
  uint64_t hits_ = 0;
  uint64_t misses_ = 0;
};

}  // namespace millrace::api
