#include "api/openai_format.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "text/utf8.h"

namespace millrace::api {
namespace {

namespace json = boost::json;

// The double that prints with as few digits as the float. JSON has no infinity: the floor is vLLM's.
double JsonNumber(float value) {
  constexpr float kFloor = -9999.0f;
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), std::max(value, kFloor)).ptr;
  double number = 0;
  std::from_chars(digits, end, number);
  return number;
}

json::object UsageJson(const TokenUsage& usage) {
  json::object out;
  out["prompt_tokens"] = usage.prompt_tokens;
  out["completion_tokens"] = usage.completion_tokens;
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  out["prompt_tokens_details"] = json::object{{"cached_tokens", usage.cached_tokens}};
  out["completion_tokens_details"] = json::object{{"reasoning_tokens", usage.reasoning_tokens}};
  // The vendor's own service counts the same this way.
  out["prompt_cache_hit_tokens"] = usage.cached_tokens;
  out["prompt_cache_miss_tokens"] = usage.prompt_tokens - usage.cached_tokens;
  return out;
}

json::value ReasonJson(engine::FinishReason reason) {
  return json::string(engine::FinishReasonName(reason));
}

std::string Event(const json::object& object) {
  return "data: " + json::serialize(object) + "\n\n";
}

// The parts that both endpoints share.
class OpenAiFormat : public AnswerFormat {
 public:
  OpenAiFormat(OpenAiHead head, std::string_view whole_object, std::string_view chunk_object)
      : head_(std::move(head)), whole_object_(whole_object), chunk_object_(chunk_object) {}

  std::string Whole(std::span<const FinishedChoice> choices, const TokenUsage& usage) override {
    json::array list;
    for (size_t c = 0; c < choices.size(); ++c) list.push_back(WholeChoice(c, choices[c]));
    json::object answer = Head(whole_object_);
    answer["choices"] = std::move(list);
    answer["usage"] = UsageJson(usage);
    return json::serialize(answer);
  }

  std::string Delta(size_t choice, const TextDelta& delta) override {
    return Chunk(StreamedChoice(choice, delta), nullptr);
  }

  std::string ChoiceEnd(size_t choice, const TextDelta& rest, engine::FinishReason reason) override {
    std::string events = rest.empty() ? "" : Delta(choice, rest);
    json::object last = StreamedChoice(choice, {});
    last["finish_reason"] = ReasonJson(reason);
    return events + Chunk(std::move(last), nullptr);
  }

  std::string StreamEnd(const TokenUsage& usage) override {
    std::string events;
    if (head_.include_usage) {
      json::object last = Head(chunk_object_);
      last["choices"] = json::array();
      last["usage"] = UsageJson(usage);
      events = Event(last);
    }
    return events + "data: [DONE]\n\n";
  }

  std::string StreamError(const ApiError& error) override { return "data: " + ErrorJson(error) + "\n\n"; }

  std::string Filler() override { return ": keep-alive\n\n"; }

 protected:
  virtual json::object WholeChoice(size_t choice, const FinishedChoice& finished) = 0;
  virtual json::object StreamedChoice(size_t choice, const TextDelta& delta) = 0;

 private:
  json::object Head(std::string_view object) const {
    json::object head;
    head["id"] = head_.id;
    head["object"] = object;
    head["created"] = head_.created;
    head["model"] = head_.model;
    head["system_fingerprint"] = head_.system_fingerprint;
    return head;
  }

  std::string Chunk(json::object choice, json::value usage) {
    json::object chunk = Head(chunk_object_);
    json::array list;
    list.push_back(std::move(choice));
    chunk["choices"] = std::move(list);
    if (head_.include_usage) chunk["usage"] = std::move(usage);
    return Event(chunk);
  }

  const OpenAiHead head_;
  const std::string_view whole_object_;
  const std::string_view chunk_object_;
};

json::object TokenJson(const TokenText& token) {
  json::array bytes;
  for (char byte : token.bytes) bytes.push_back(static_cast<int64_t>(static_cast<uint8_t>(byte)));
  json::object out;
  out["token"] = text::RepairUtf8(token.bytes);
  out["logprob"] = JsonNumber(token.logprob);
  out["bytes"] = std::move(bytes);
  return out;
}

json::array ScoredTokensJson(std::span<const ScoredToken> tokens) {
  json::array list;
  for (const ScoredToken& token : tokens) {
    json::object entry = TokenJson(token.chosen);
    json::array top;
    for (const TokenText& alternative : token.top) top.push_back(TokenJson(alternative));
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

class ChatFormat final : public OpenAiFormat {
 public:
  explicit ChatFormat(OpenAiHead head)
      : OpenAiFormat(std::move(head), "chat.completion", "chat.completion.chunk") {}

 private:
  json::object WholeChoice(size_t choice, const FinishedChoice& finished) override {
    json::object message;
    message["role"] = "assistant";
    message["content"] = finished.text.content;
    message["refusal"] = nullptr;
    AddReasoning(finished.text.reasoning, message);
    json::object out;
    out["index"] = choice;
    out["message"] = std::move(message);
    out["logprobs"] = Logprobs(finished.text);
    out["finish_reason"] = ReasonJson(finished.reason);
    return out;
  }

  json::object StreamedChoice(size_t choice, const TextDelta& delta) override {
    json::object message;
    if (begun_.insert(choice).second) {
      message["role"] = "assistant";
      message["content"] = "";
    }
    AddReasoning(delta.reasoning, message);
    if (!delta.content.empty()) message["content"] = delta.content;
    json::object out;
    out["index"] = choice;
    out["delta"] = std::move(message);
    out["logprobs"] = Logprobs(delta);
    out["finish_reason"] = nullptr;
    return out;
  }

  // Under both names that clients look for.
  static void AddReasoning(const std::string& reasoning, json::object& message) {
    if (reasoning.empty()) return;
    message["reasoning_content"] = reasoning;
    message["reasoning"] = reasoning;
  }

  static json::value Logprobs(const TextDelta& delta) {
    if (delta.content_tokens.empty() && delta.reasoning_tokens.empty()) return nullptr;
    json::object out;
    out["content"] = ScoredTokensJson(delta.content_tokens);
    out["refusal"] = nullptr;
    if (!delta.reasoning_tokens.empty()) out["reasoning_content"] = ScoredTokensJson(delta.reasoning_tokens);
    return out;
  }

  std::unordered_set<size_t> begun_;  // choices whose first chunk, the one with the role, is out
};

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(OpenAiHead head, std::vector<std::string> echo)
      : OpenAiFormat(std::move(head), "text_completion", "text_completion"), echo_(std::move(echo)) {}

 private:
  json::object WholeChoice(size_t choice, const FinishedChoice& finished) override {
    json::object out = StreamedChoice(choice, finished.text);
    out["finish_reason"] = ReasonJson(finished.reason);
    return out;
  }

  json::object StreamedChoice(size_t choice, const TextDelta& delta) override {
    std::string text = choice < echo_.size() ? std::exchange(echo_[choice], {}) : "";
    text += delta.content;
    json::object out;
    out["index"] = choice;
    out["text"] = std::move(text);
    out["logprobs"] = Logprobs(delta.content_tokens);
    out["finish_reason"] = nullptr;
    return out;
  }

  // Parallel lists; the chosen token is among the alternatives whether or not it is one of the best.
  static json::value Logprobs(std::span<const ScoredToken> tokens) {
    if (tokens.empty()) return nullptr;
    json::array names, logprobs, tops, offsets;
    for (const ScoredToken& token : tokens) {
      const std::string name = text::RepairUtf8(token.chosen.bytes);
      json::object top;
      for (const TokenText& other : token.top)
        top.emplace(text::RepairUtf8(other.bytes), JsonNumber(other.logprob));
      top[name] = JsonNumber(token.chosen.logprob);
      names.push_back(json::string(name));
      logprobs.push_back(JsonNumber(token.chosen.logprob));
      tops.push_back(std::move(top));
      offsets.push_back(token.text_offset);
    }
    json::object out;
    out["tokens"] = std::move(names);
    out["token_logprobs"] = std::move(logprobs);
    out["top_logprobs"] = std::move(tops);
    out["text_offset"] = std::move(offsets);
    return out;
  }

  std::vector<std::string> echo_;  // by choice; emptied once sent
};

json::object ModelObject(const std::string& id, int64_t created, int64_t max_model_len) {
  json::object model;
  model["id"] = id;
  model["object"] = "model";
  model["created"] = created;
  model["owned_by"] = "millrace";
  model["max_model_len"] = max_model_len;
  return model;
}

}  // namespace

std::unique_ptr<AnswerFormat> MakeOpenAiChatFormat(OpenAiHead head) {
  return std::make_unique<ChatFormat>(std::move(head));
}

std::unique_ptr<AnswerFormat> MakeOpenAiCompletionFormat(OpenAiHead head, std::vector<std::string> echo) {
  return std::make_unique<CompletionFormat>(std::move(head), std::move(echo));
}

std::string OpenAiModelJson(const std::string& id, int64_t created, int64_t max_model_len) {
  return json::serialize(ModelObject(id, created, max_model_len));
}

std::string OpenAiModelListJson(const std::vector<std::string>& ids, int64_t created, int64_t max_model_len) {
  json::array data;
  for (const std::string& id : ids) data.push_back(ModelObject(id, created, max_model_len));
  json::object list;
  list["object"] = "list";
  list["data"] = std::move(data);
  return json::serialize(list);
}

}  // namespace millrace::api
