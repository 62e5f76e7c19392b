#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "app/commands.h"
#include "app/standard_input.h"
#include "text/chat_case.h"
#include "text/chat_prompt.h"
#include "text/ordered_json.h"

namespace millrace::app {
namespace {

using text::ChatModel;
using text::OrderedJson;

struct EncodeChatFlags {
  std::string tokenizer;
  ChatModel model = ChatModel::kV41;
};

// The encoders of both models over one tokenizer, each made when the first case asks for it: a V4 tokenizer
// lacks tokens of V4.1. The tokenizer outlives them.
class Encoders {
 public:
  explicit Encoders(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Result<const text::ChatEncoder*> For(ChatModel model) {
    std::optional<text::ChatEncoder>& encoder = model == ChatModel::kV41 ? v41_ : v4_;
    if (!encoder) {
      MILLRACE_ASSIGN_OR_RETURN(text::ChatEncoder made, text::ChatEncoder::Create(tokenizer_, model));
      encoder.emplace(std::move(made));
    }
    return &*encoder;
  }

 private:
  const text::Tokenizer& tokenizer_;
  std::optional<text::ChatEncoder> v41_;
  std::optional<text::ChatEncoder> v4_;
};

OrderedJson IdsJson(const std::vector<TokenId>& ids) {
  OrderedJson::Array items;
  items.reserve(ids.size());
  for (const TokenId id : ids) items.emplace_back(OrderedJson::Number{std::to_string(id)});
  return OrderedJson(std::move(items));
}

// "prompt", "ids" and, if there are any, "images".
Result<OrderedJson::Object> Encoded(const OrderedJson& item, ChatModel default_model, Encoders& encoders) {
  MILLRACE_ASSIGN_OR_RETURN(const text::ChatCase read, text::ReadChatCase(item, default_model));
  MILLRACE_ASSIGN_OR_RETURN(const text::ChatEncoder* const encoder, encoders.For(read.model));
  MILLRACE_ASSIGN_OR_RETURN(text::ChatPrompt prompt, encoder->Render(read.request));
  OrderedJson::Object result;
  result.push_back({.key = "prompt", .value = OrderedJson(prompt.pieces.Spelled(encoder->tokenizer()))});
  result.push_back({.key = "ids", .value = IdsJson(encoder->Encode(prompt))});
  if (!prompt.images.empty()) {
    result.push_back({.key = "images", .value = OrderedJson(std::move(prompt.images))});
  }
  return result;
}

// What names a case in the output: its id, else its place.
OrderedJson CaseId(const OrderedJson& item, size_t index) {
  const OrderedJson* const id = item.Find("id");
  return id == nullptr ? OrderedJson(OrderedJson::Number{std::to_string(index)}) : *id;
}

// A conversation that the encoding refuses is a result like another: files of cases hold such on purpose.
Status EncodeChat(const EncodeChatFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::Tokenizer::Load(flags.tokenizer));
  MILLRACE_ASSIGN_OR_RETURN(const std::string input, ReadStandardInput());
  const Result<OrderedJson> file = text::ParseOrderedJson(input, {.max_bytes = kMaxInputBytes});
  if (!file.ok()) return file.error().In("standard input");
  const OrderedJson* const cases = file->if_array() != nullptr ? &*file : file->Find("cases");
  if (cases == nullptr || cases->if_array() == nullptr) {
    return Error(ErrorCode::kInvalidArgument,
                 "standard input: expected {\"cases\": [...]} or an array of cases");
  }
  Encoders encoders(tokenizer);
  std::string_view separator = "[\n";
  size_t index = 0;
  for (const OrderedJson& item : *cases->if_array()) {
    OrderedJson::Object line{{.key = "id", .value = CaseId(item, index++)}};
    Result<OrderedJson::Object> encoded = Encoded(item, flags.model, encoders);
    if (encoded.ok()) {
      for (OrderedJson::Member& member : *encoded) line.push_back(std::move(member));
    } else {
      line.push_back({.key = "error", .value = OrderedJson(encoded.error().message())});
    }
    fmt::print("{}{}", std::exchange(separator, ",\n"), text::PythonJson(OrderedJson(std::move(line))));
  }
  fmt::print("{}\n", cases->if_array()->empty() ? "[]" : "\n]");
  if (std::fflush(stdout) != 0) return Error(ErrorCode::kIo, "cannot write standard output");
  return {};
}

// For CLI11: the message of a wrong --model, or nothing.
std::string ModelFault(const std::string& name) {
  const Result<ChatModel> model = text::ParseChatModel(name);
  return model.ok() ? "" : model.error().message();
}

}  // namespace

void AddEncodeChatCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<EncodeChatFlags>();
  CLI::App* command = root.add_subcommand(
      "encode-chat",
      "Read conversations as JSON from standard input, print their prompts and token ids as JSON");
  command->footer(
      "Input: {\"cases\": [{\"id\", \"messages\", \"tools\"?, \"response_format\"?, \"model\"?,\n"
      "\"options\": {\"thinking\", \"reasoning_effort\", \"drop_thinking\", \"task\", "
      "\"continue_final_message\"}?},"
      "\n...]}. Output: [{\"id\", \"prompt\", \"ids\", \"images\"?}, ...]; a conversation that the encoding\n"
      "refuses has \"error\" instead.");
  command->add_option("--tokenizer", flags->tokenizer, "A tokenizer.json or the directory that holds one")
      ->required();
  command
      ->add_option_function<std::string>(
          "--model", [flags](const std::string& name) { flags->model = *text::ParseChatModel(name); },
          "Chat encoding of cases that do not name one: v41 or v4")
      ->check(CLI::Validator(ModelFault, ""))
      ->default_str("v41");
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportStatus(EncodeChat(*flags)); }; });
}

}  // namespace millrace::app
