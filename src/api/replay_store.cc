#include "api/replay_store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "text/tool_schema.h"

namespace millrace::api {
namespace {

constexpr size_t kCallIdDigits = 24;  // Generation makes them

// A call id without what a dialect, or several after each other, put in front of it.
std::string_view BareCallId(std::string_view id) {
  return id.size() > kCallIdDigits ? id.substr(id.size() - kCallIdDigits) : id;
}

Hash128 CallKey(std::string_view id) {
  return HashText(std::string("call:").append(BareCallId(id)));
}

// With the reasoning, for clients that send it back: of several answers that read the same the very one.
Hash128 ReasonedKey(const Hash128& conversation, std::string_view reasoning) {
  std::string text("reasoned:");
  text.append(reinterpret_cast<const char*>(&conversation), sizeof(conversation)).append(reasoning);
  return HashText(text);
}

text::ChatMessage AsMessage(const GeneratedAnswer& answer) {
  text::ChatMessage message;
  message.role = text::Role::kAssistant;
  message.content = answer.content;
  message.tool_calls = answer.calls;
  return message;
}

// A client may drop the namespace that it was given apart from the name.
bool SameName(const std::string& generated, const std::string& sent) {
  return generated == sent || text::SplitToolName(generated).name == sent;
}

bool SaysTheSame(const GeneratedAnswer& answer, const text::ChatMessage& message) {
  const bool same_calls = std::ranges::equal(
      answer.calls, message.tool_calls, [](const text::ToolCall& generated, const text::ToolCall& sent) {
        return SameName(generated.name, sent.name) &&
               CanonicalArguments(generated.arguments) == CanonicalArguments(sent.arguments);
      });
  return same_calls && !message.content.HasImage() && answer.content == message.content.Text() &&
         (message.reasoning.empty() || message.reasoning == answer.reasoning);
}

size_t BytesOf(const GeneratedAnswer& answer, size_t keys) {
  constexpr size_t kNodes = 256;  // of the list, the counted pointer and their allocations
  constexpr size_t kKeyNode = 96;
  size_t bytes = kNodes + keys * kKeyNode + answer.ids.size() * sizeof(TokenId) + answer.reasoning.size() +
                 answer.content.size();
  for (const text::ToolCall& call : answer.calls)
    bytes += sizeof(call) + call.id.size() + call.name.size() + call.arguments.size();
  return bytes;
}

}  // namespace

ReplayStore::~ReplayStore() {
  if (account_ != nullptr) account_->Remove(bytes_);
}

void ReplayStore::Add(const ConversationHash& conversation, GeneratedAnswer answer) {
  ConversationHash through = conversation;
  through.Add(AsMessage(answer));
  Entry entry;
  entry.keys = {through.value(), ReasonedKey(through.value(), answer.reasoning)};
  for (const text::ToolCall& call : answer.calls) entry.keys.push_back(CallKey(call.id));
  entry.bytes = BytesOf(answer, entry.keys.size());
  entry.answer = std::make_shared<const GeneratedAnswer>(std::move(answer));

  const std::lock_guard lock(mutex_);
  if (entry.bytes > max_bytes_) return;
  while (bytes_ + entry.bytes > max_bytes_) Forget(std::prev(entries_.end()));
  bytes_ += entry.bytes;
  if (account_ != nullptr) account_->Add(entry.bytes);
  entries_.push_front(std::move(entry));
  for (const Hash128& key : entries_.front().keys) by_key_[key] = entries_.begin();
}

// A key may by now belong to a newer answer.
void ReplayStore::Forget(Entries::iterator entry) {
  for (const Hash128& key : entry->keys) {
    const auto found = by_key_.find(key);
    if (found != by_key_.end() && found->second == entry) by_key_.erase(found);
  }
  bytes_ -= entry->bytes;
  if (account_ != nullptr) account_->Remove(entry->bytes);
  entries_.erase(entry);
}

std::shared_ptr<const GeneratedAnswer> ReplayStore::Find(const Hash128& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->answer;
}

std::shared_ptr<const GeneratedAnswer> ReplayStore::FindFor(const text::ChatMessage& message,
                                                            const ConversationHash& through_message) {
  std::vector<Hash128> keys;
  for (const text::ToolCall& call : message.tool_calls) {
    if (!call.id.empty()) keys.push_back(CallKey(call.id));
  }
  if (!message.reasoning.empty()) keys.push_back(ReasonedKey(through_message.value(), message.reasoning));
  keys.push_back(through_message.value());
  // All calls of a message mostly belong to one answer: it is compared once, not once a call.
  std::shared_ptr<const GeneratedAnswer> rejected;
  for (const Hash128& key : keys) {
    std::shared_ptr<const GeneratedAnswer> answer = Find(key);
    if (!answer || answer == rejected) continue;
    if (SaysTheSame(*answer, message)) return answer;
    rejected = std::move(answer);
  }
  return nullptr;
}

ConversationHash ReplayStore::Restore(std::vector<text::ChatMessage>& messages) {
  ConversationHash conversation;
  for (text::ChatMessage& message : messages) {
    conversation.Add(message);
    if (message.role != text::Role::kAssistant) continue;
    const std::shared_ptr<const GeneratedAnswer> answer = FindFor(message, conversation);
    if (answer) {
      message.generated_ids = answer->ids;
      message.generated_in_reasoning = answer->started_in_reasoning;
    }
    const std::lock_guard lock(mutex_);
    ++(answer ? hits_ : misses_);
  }
  return conversation;
}

ReplayStore::Stats ReplayStore::stats() const {
  const std::lock_guard lock(mutex_);
  return {hits_, misses_, entries_.size(), bytes_};
}

}  // namespace millrace::api
