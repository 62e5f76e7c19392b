#include "text/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "formats/json.h"
#include "text/chat_turns.h"
#include "text/reasoning_effort.h"
#include "text/tool_markup.h"

namespace millrace::text {
namespace {

constexpr std::string_view kBlockSeparator = "\n\n";
constexpr std::string_view kResponseFormat =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

Error Refused(std::string message) {
  return Error(ErrorCode::kInvalidArgument, std::move(message));
}

// Writes one conversation that CheckRequest and CheckTurns let pass. Indices are those of turns; rules by
// section of the chat encoding.
class Renderer {
 public:
  Renderer(ChatModel model, const ControlIds& ids, const ChatOptions& options, Conversation conversation)
      : model_(model), ids_(ids), options_(options), conversation_(std::move(conversation)) {
    prompt_.repeated_call_ids = conversation_.repeated_call_ids;
  }

  ChatPrompt Render() && {
    Control(ids_.bos);
    if (model_ == ChatModel::kV41 && (turns_[0].role == Role::kSystem || options_.thinking)) {
      Control(*ids_.system);
    }
    if (options_.thinking) Text(EffortText(model_, options_.reasoning_effort));
    for (size_t i = 0; i < turns_.size(); ++i) WriteTurn(i);
    if (options_.always_open_answer && !options_.continue_final_message) EnsureHeader(turns_.size());
    return std::move(prompt_);
  }

 private:
  // Whether what the assistant thinks at turn `i` is part of the prompt (section 5).
  bool KeepsReasoning(size_t i) const {
    if (!options_.thinking) return false;
    return !conversation_.drop_reasoning || !conversation_.last_user || i >= *conversation_.last_user;
  }

  // A system message behind the first makes the V4.1 model answer.
  bool IsLaterSystem(size_t i) const {
    return model_ == ChatModel::kV41 && i > 0 && turns_[i].role == Role::kSystem;
  }

  bool IsContinued(size_t i) const { return options_.continue_final_message && i + 1 == turns_.size(); }

  void WriteTurn(size_t i) {
    const Turn& turn = turns_[i];
    if (turn.role == Role::kAssistant) return WriteAssistant(i);
    // A reminder stands behind the header of the user turn in front of it, if there is one.
    if (turn.role != Role::kLatestReminder) ends_with_header_ = false;
    if (IsLaterSystem(i)) Control(*ids_.system);  // at index 0 it is already there
    if (turn.role == Role::kLatestReminder) Control(ids_.latest_reminder);
    if (turn.role == Role::kUser || turn.role == Role::kDeveloper) Control(ids_.user);
    WriteBlocks(turn);
    if (turn.role == Role::kSystem || turn.role == Role::kDeveloper) WriteAttachments(turn);
    if (OpensAnswer(i)) turn.task ? WriteTask(*turn.task) : WriteHeader(i);
  }

  // The parts of a turn's messages as blocks; a result is one block (section 6).
  void WriteBlocks(const Turn& turn) {
    bool first = true;
    for (const ChatMessage* const message : turn.messages) {
      if (message->role == Role::kTool) {
        if (!std::exchange(first, false)) Text(kBlockSeparator);
        Text("<tool_result>");
        bool first_part = true;
        WriteParts(message->content, first_part);
        Text("</tool_result>");
      } else {
        WriteParts(message->content, first);
      }
    }
  }

  // `first`: nothing stands in front that the parts must be separated from.
  void WriteParts(const MessageContent& content, bool& first) {
    for (const ContentPart& part : content.parts()) {
      if (!std::exchange(first, false)) Text(kBlockSeparator);
      if (const std::string* const text = std::get_if<std::string>(&part)) {
        Text(*text);
      } else {
        Control(*ids_.image);
        prompt_.images.push_back(std::get<ImageSource>(part).source);
      }
    }
  }

  void WriteAttachments(const Turn& turn) {
    if (!turn.tools.empty()) {
      Text(kBlockSeparator);
      ToolMarkupWriter(model_, ids_, prompt_.pieces).WriteDeclarations(turn.tools);
    }
    if (turn.response_format != nullptr) {
      Text(kBlockSeparator);
      Text(kResponseFormat);
      Text(PythonJson(*turn.response_format));
    }
  }

  // Section 3: whether the assistant header follows turn `i`.
  bool OpensAnswer(size_t i) const {
    const Role role = turns_[i].role;
    if (role != Role::kUser && role != Role::kDeveloper && !IsLaterSystem(i)) return false;
    if (i + 1 == turns_.size()) return true;
    const Role next = turns_[i + 1].role;
    return next == Role::kAssistant || next == Role::kLatestReminder;
  }

  void WriteHeader(size_t i) {
    Control(ids_.assistant);
    Think(KeepsReasoning(i));
    ends_with_header_ = true;
  }

  void EnsureHeader(size_t i) {
    if (!ends_with_header_) WriteHeader(i);
  }

  // Section 9: stands in the header's place.
  void WriteTask(Task task) {
    if (task == Task::kAction) {
      Control(ids_.assistant);
      Think(options_.thinking);
    }
    Control(*ids_.tasks[static_cast<size_t>(task)]);
    ends_with_header_ = true;
  }

  void WriteAssistant(size_t i) {
    const ChatMessage& message = *turns_[i].messages.front();
    // What this server generated stood behind a header, and what it goes on with shall.
    const bool answers = IsContinued(i) || !message.generated_ids.empty();
    if (answers && options_.always_open_answer) EnsureHeader(i);
    const bool after_task = i > 0 && turns_[i - 1].task.has_value();
    const bool reasons = KeepsReasoning(i) && !after_task;
    if (message.generated_ids.empty() || !WriteGenerated(message, reasons, after_task, IsContinued(i))) {
      WriteSpelled(message, reasons, IsContinued(i));
    }
    if (!IsContinued(i)) Control(ids_.eos);
    ends_with_header_ = false;
  }

  void WriteSpelled(const ChatMessage& message, bool reasons, bool continued) {
    if (reasons) {
      Text(message.reasoning);
      if (!continued || !message.content.empty()) Think(false);
    }
    bool first = true;
    WriteParts(message.content, first);
    if (message.tool_calls.empty()) return;
    Text(kBlockSeparator);
    ToolMarkupWriter(model_, ids_, prompt_.pieces).WriteCalls(message.tool_calls);
  }

  // The tokens that made the message, as far as the prompt has a place for them. False if reasoning must go
  // and does not end at one clear place: then the message is to be spelled.
  bool WriteGenerated(const ChatMessage& message, bool reasons, bool after_task, bool continued) {
    const std::span<const TokenId> ids = message.generated_ids;
    if (!message.generated_in_reasoning) {
      if (reasons) Think(false);
      WriteIds(ids);
      return true;
    }
    const auto end = std::ranges::find(ids, ids_.think_end);
    if (reasons || after_task) {
      WriteIds(ids);
      // Generation that ended inside the reasoning is closed as its spelling would be; one that called a tool
      // there is over.
      const bool is_open = reasons && end == ids.end() && message.tool_calls.empty();
      if (is_open && !(continued && message.content.empty())) Think(false);
      return true;
    }
    const auto opened_calls = std::find(ids.begin(), end, ids_.dsml);
    const auto is_think = [&](TokenId id) { return id == ids_.think_begin || id == ids_.think_end; };
    if (end == ids.end() || opened_calls != end || std::any_of(end + 1, ids.end(), is_think)) return false;
    WriteIds(ids.subspan(static_cast<size_t>(end - ids.begin()) + 1));
    return true;
  }

  void WriteIds(std::span<const TokenId> ids) {
    prompt_.pieces.AddIds(ids);
    for (const TokenId id : ids) {
      if (id == ids_.think_begin || id == ids_.think_end)
        prompt_.starts_in_reasoning = id == ids_.think_begin;
    }
  }

  void Think(bool begin) {
    prompt_.starts_in_reasoning = begin;
    Control(begin ? ids_.think_begin : ids_.think_end);
  }
  void Control(TokenId id) { prompt_.pieces.AddControl(id); }
  void Text(std::string_view text) { prompt_.pieces.AddText(text); }

  const ChatModel model_;
  const ControlIds& ids_;
  const ChatOptions& options_;
  const Conversation conversation_;
  const std::vector<Turn>& turns_ = conversation_.turns;
  ChatPrompt prompt_;
  bool ends_with_header_ = false;  // the model may speak now
};

Status CheckContinuation(const ChatMessage& last) {
  if (last.role != Role::kAssistant) {
    return Refused(
        "the final message cannot be continued: it is not the assistant's; end the conversation "
        "with an assistant message or do not ask for a continuation");
  }
  if (!last.tool_calls.empty()) {
    return Refused(
        "the final assistant message cannot be continued: it has tool calls; answer them with tool "
        "messages");
  }
  return {};
}

Status CheckRequest(const ChatRequest& request, ChatModel model, const ControlIds& ids) {
  if (request.messages.empty()) return Refused("messages is empty; give at least one message");
  const std::optional<int> effort = request.options.reasoning_effort;
  if (request.options.thinking && effort && !IsReasoningEffort(*effort)) {
    return Refused(fmt::format("invalid reasoning effort {}; give a number from 1 to 100", *effort));
  }
  for (size_t i = 0; i < request.messages.size(); ++i) {
    if (!request.messages[i].content.HasImage()) continue;
    if (model == ChatModel::kV4) {
      return Refused(fmt::format("messages[{}] holds an image; DeepSeek-V4 reads text only", i));
    }
    if (!ids.image) {
      return Refused(fmt::format("messages[{}] holds an image, and the tokenizer has no image token", i));
    }
  }
  if (request.options.continue_final_message) return CheckContinuation(request.messages.back());
  return {};
}

Status CheckTools(const Turn& turn) {
  std::set<std::string_view> names;
  for (const ToolDeclaration* const tool : turn.tools) {
    if (names.insert(tool->name).second) continue;
    return Refused(fmt::format("the tool {} is declared twice; give every tool its own name",
                               formats::Quoted(tool->name)));
  }
  return {};
}

Status CheckTurns(const std::vector<Turn>& turns, const ControlIds& ids) {
  for (const Turn& turn : turns) {
    MILLRACE_RETURN_IF_ERROR(CheckTools(turn));
    if (turn.task && !ids.tasks[static_cast<size_t>(*turn.task)]) {
      return Refused(
          "the tokenizer has no token for the task that a message asks for; use a checkpoint that "
          "knows tasks");
    }
    if (turn.role == Role::kDeveloper && turn.messages.front()->content.empty()) {
      return Refused("a developer message is empty; give it a text or leave it out");
    }
  }
  return {};
}

}  // namespace

Result<ChatEncoder> ChatEncoder::Create(const Tokenizer& tokenizer, ChatModel model) {
  MILLRACE_ASSIGN_OR_RETURN(const ControlIds ids, ControlIds::Find(tokenizer, model));
  return ChatEncoder(tokenizer, model, ids);
}

Result<ChatPrompt> ChatEncoder::Render(const ChatRequest& request) const {
  MILLRACE_RETURN_IF_ERROR(CheckRequest(request, model_, ids_));
  Conversation conversation = BuildConversation(request, model_);
  MILLRACE_RETURN_IF_ERROR(CheckTurns(conversation.turns, ids_));
  return Renderer(model_, ids_, request.options, std::move(conversation)).Render();
}

}  // namespace millrace::text
