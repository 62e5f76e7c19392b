#include "text/chat_turns.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace millrace::text {
namespace {

Role PromptRole(const ChatMessage& message, size_t index, ChatModel model) {
  const bool as_system = message.role == Role::kDeveloper && (model == ChatModel::kV41 || index == 0);
  return as_system ? Role::kSystem : message.role;
}

bool Asks(const OrderedJson& response_format) {
  const OrderedJson::Object* const object = response_format.if_object();
  return !response_format.is_null() && (object == nullptr || !object->empty());
}

void AddTools(const std::vector<ToolDeclaration>& tools, Turn& turn) {
  for (const ToolDeclaration& tool : tools) turn.tools.push_back(&tool);
}

bool IsUserTurn(const std::vector<Turn>& turns) {
  return !turns.empty() && turns.back().role == Role::kUser;
}

// Whether a message of role user or tool continues the last turn.
bool Joins(const ChatMessage& message, const std::vector<Turn>& turns) {
  if (!IsUserTurn(turns)) return false;
  return message.role == Role::kTool || !turns.back().task;
}

// An empty user message after results, which some clients send to make the model go on, opens no turn.
bool SaysNothing(const ChatMessage& message, const std::optional<Task>& task,
                 const std::vector<Turn>& turns) {
  return message.role == Role::kUser && !task && message.content.empty() && IsUserTurn(turns) &&
         turns.back().messages.back()->role == Role::kTool;
}

// Tasks go with messages until turns are merged; that of the options goes to the last user message.
std::optional<Task> TaskOf(const ChatRequest& request, const ChatMessage& message,
                           const ChatMessage* last_user) {
  return &message == last_user && request.options.task ? request.options.task : message.task;
}

const ChatMessage* LastUserMessage(const std::vector<ChatMessage>& messages) {
  const auto last =
      std::find_if(messages.rbegin(), messages.rend(), [](const auto& m) { return m.role == Role::kUser; });
  return last == messages.rend() ? nullptr : &*last;
}

std::vector<Turn> MergedTurns(const ChatRequest& request, ChatModel model) {
  const ChatMessage* const last_user = LastUserMessage(request.messages);
  std::vector<Turn> turns;
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const ChatMessage& message = request.messages[i];
    const std::optional<Task> task = TaskOf(request, message, last_user);
    const bool in_user_turn = message.role == Role::kUser || message.role == Role::kTool;
    if (in_user_turn && SaysNothing(message, task, turns)) continue;
    if (!in_user_turn || !Joins(message, turns)) {
      turns.push_back({.role = in_user_turn ? Role::kUser : PromptRole(message, i, model)});
    }
    Turn& turn = turns.back();
    turn.messages.push_back(&message);
    if (task) turn.task = task;
    AddTools(message.tools, turn);
    if (Asks(message.response_format)) turn.response_format = &message.response_format;
  }
  return turns;
}

void AttachRequestTools(const ChatRequest& request, std::vector<Turn>& turns) {
  if (request.tools.empty() && !Asks(request.response_format)) return;
  if (turns.front().role != Role::kSystem) turns.insert(turns.begin(), Turn{.role = Role::kSystem});
  AddTools(request.tools, turns.front());
  if (Asks(request.response_format)) turns.front().response_format = &request.response_format;
}

// Puts the results of each user turn into the order of the calls that they answer.
class ResultSorter {
 public:
  void Sort(std::vector<Turn>& turns) {
    for (Turn& turn : turns) {
      if (turn.role == Role::kUser) {
        SortResults(turn.messages);
      } else if (turn.role == Role::kAssistant && !turn.messages.front()->tool_calls.empty()) {
        LearnCalls(turn.messages.front()->tool_calls);
      }
    }
  }

  bool repeated_ids() const { return repeated_ids_; }

 private:
  void LearnCalls(const std::vector<ToolCall>& calls) {
    places_.clear();
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].id.empty()) continue;
      repeated_ids_ |= !places_.insert_or_assign(calls[i].id, i).second;
    }
  }

  size_t PlaceOf(const ChatMessage* result) const {
    const auto known = places_.find(result->tool_call_id);
    return known == places_.end() ? 0 : known->second;
  }

  // Results are permuted among the places that results hold; what users say stays where it is.
  void SortResults(std::vector<const ChatMessage*>& messages) const {
    std::vector<const ChatMessage*> results;
    std::ranges::copy_if(messages, std::back_inserter(results),
                         [](const ChatMessage* message) { return message->role == Role::kTool; });
    std::ranges::stable_sort(results, {}, [&](const ChatMessage* result) { return PlaceOf(result); });
    auto next = results.begin();
    for (const ChatMessage*& message : messages) {
      if (message->role == Role::kTool) message = *next++;
    }
  }

  std::map<std::string_view, size_t> places_;  // by id, of the last assistant message that had calls
  bool repeated_ids_ = false;
};

// A later system message of V4.1 counts, because it makes the model answer.
std::optional<size_t> LastUser(const std::vector<Turn>& turns, ChatModel model) {
  for (size_t i = turns.size(); i-- > 0;) {
    const Turn& turn = turns[i];
    const bool later_system = turn.role == Role::kSystem && i > 0 && model == ChatModel::kV41;
    if (later_system || turn.role == Role::kDeveloper) return i;
    if (turn.role == Role::kUser && !turn.IsResultsOnly()) return i;
  }
  return std::nullopt;
}

}  // namespace

bool Turn::IsResultsOnly() const {
  return role == Role::kUser &&
         std::ranges::all_of(messages, [](const ChatMessage* m) { return m->role == Role::kTool; });
}

Conversation BuildConversation(const ChatRequest& request, ChatModel model) {
  Conversation conversation;
  std::vector<Turn>& turns = conversation.turns;
  turns = MergedTurns(request, model);
  AttachRequestTools(request, turns);
  ResultSorter sorter;
  sorter.Sort(turns);
  conversation.repeated_call_ids = sorter.repeated_ids();
  conversation.drop_reasoning =
      request.options.drop_reasoning &&
      std::ranges::all_of(turns, [](const Turn& turn) { return turn.tools.empty(); });
  conversation.last_user = LastUser(turns, model);
  if (request.options.thinking && conversation.drop_reasoning && conversation.last_user) {
    // Old developer messages go with the reasoning; only V4 has any left.
    const auto end = turns.begin() + static_cast<ptrdiff_t>(*conversation.last_user);
    const auto kept =
        std::remove_if(turns.begin(), end, [](const Turn& turn) { return turn.role == Role::kDeveloper; });
    *conversation.last_user -= static_cast<size_t>(end - kept);
    turns.erase(kept, end);
  }
  return conversation;
}

}  // namespace millrace::text
