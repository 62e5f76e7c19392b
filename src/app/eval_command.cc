#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/eval_trace.h"
#include "app/evaluator.h"
#include "app/forward_flags.h"
#include "engine/load.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/text_file.h"
#include "model/forward.h"

namespace millrace::app {
namespace {

namespace json = boost::json;

constexpr size_t kMaxPromptFileBytes = size_t{1} << 30;

struct EvalFlags {
  std::string checkpoint;
  std::string tokens;
  std::string out;
  model::Numerics numerics = model::Numerics::kReference;
  int64_t chunk = 0;
  int threads = 0;
  bool layers = false;
};

struct EvalPrompt {
  std::string name;
  std::vector<TokenId> ids;
};

Result<std::vector<TokenId>> ReadIds(const json::value& value, int64_t vocab_size) {
  const json::array* array = value.if_array();
  if (array == nullptr || array->empty()) {
    return Error(ErrorCode::kInvalidArgument, "expected a non-empty array of token ids");
  }
  std::vector<TokenId> ids;
  for (const json::value& item : *array) {
    const int64_t* id = item.if_int64();
    if (id == nullptr || *id < 0 || *id >= vocab_size) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("[{}] is {}, expected a token id from 0 to {}", ids.size(),
                               json::serialize(item), vocab_size - 1));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

// {"prompts": {"name": [ids]}}
Result<std::vector<EvalPrompt>> ReadPrompts(const std::string& file, int64_t vocab_size) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, formats::ReadTextFile(file, kMaxPromptFileBytes));
  MILLRACE_ASSIGN_OR_RETURN(const json::value root,
                            formats::ParseJson(text, {.max_bytes = kMaxPromptFileBytes}));
  const json::object* object = root.if_object();
  const json::value* prompts = object == nullptr ? nullptr : object->if_contains("prompts");
  if (prompts == nullptr || !prompts->is_object() || prompts->get_object().empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "expected {\"prompts\": {\"name\": [ids], ...}} with at least one prompt");
  }
  std::vector<EvalPrompt> all;
  for (const auto& [name, value] : prompts->get_object()) {
    Result<std::vector<TokenId>> ids = ReadIds(value, vocab_size);
    if (!ids.ok()) return ids.error().In(fmt::format("prompts.{}", std::string_view(name)));
    all.push_back({.name = name, .ids = std::move(ids).value()});
  }
  return all;
}

Status WriteTensors(const std::string& file, const std::vector<EvalTensor>& tensors) {
  std::vector<formats::TensorInfo> infos;
  for (const EvalTensor& tensor : tensors) infos.push_back(tensor.info);
  MILLRACE_ASSIGN_OR_RETURN(formats::SafetensorsWriter writer,
                            formats::SafetensorsWriter::Create(file, infos));
  for (const EvalTensor& tensor : tensors) MILLRACE_RETURN_IF_ERROR(writer.Append(tensor.bytes));
  return writer.Finish();
}

// The output replaces what it is pointed at: never an input, never anything but a file.
Status CheckOut(const EvalFlags& flags) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path out = flags.out;
  if (fs::exists(out, ignored) && !fs::is_regular_file(out, ignored)) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("--out {} is not a regular file", flags.out));
  }
  const fs::path dir = out.has_parent_path() ? out.parent_path() : fs::path(".");
  if (fs::equivalent(out, flags.tokens, ignored) || fs::equivalent(dir, flags.checkpoint, ignored)) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--out {} would overwrite what is evaluated; choose a file elsewhere", flags.out));
  }
  return {};
}

Status Eval(const EvalFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::Open(flags.checkpoint));
  Result<std::vector<EvalPrompt>> read = ReadPrompts(flags.tokens, checkpoint.config().vocab_size);
  if (!read.ok()) return read.error().In(flags.tokens);
  const std::vector<EvalPrompt>& prompts = *read;
  MILLRACE_RETURN_IF_ERROR(CheckOut(flags));
  int64_t longest = 0;
  for (const EvalPrompt& prompt : prompts)
    longest = std::max(longest, static_cast<int64_t>(prompt.ids.size()));
  if (longest > checkpoint.config().max_position_embeddings) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: a prompt has {} tokens, the checkpoint's max_position_embeddings is {}",
                             flags.tokens, longest, checkpoint.config().max_position_embeddings));
  }
  const int64_t chunk = flags.chunk == 0 ? longest : std::min(flags.chunk, longest);
  ThreadPool pool(flags.threads == 0 ? engine::UsableProcessors() : flags.threads);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Evaluator> evaluator,
      Evaluator::Create(checkpoint, pool,
                        {.max_batch_tokens = chunk, .max_batch_items = 1, .numerics = flags.numerics},
                        longest));
  std::vector<EvalTensor> tensors;
  for (const EvalPrompt& prompt : prompts) {
    EvalTrace trace;
    EvalTensor logits;
    logits.info.name = "logits." + prompt.name;
    logits.info.dtype = formats::DType::kF32;
    logits.info.shape = {static_cast<int64_t>(prompt.ids.size()), checkpoint.config().vocab_size};
    const std::vector<float> values = evaluator->Logits(prompt.ids, flags.layers ? &trace : nullptr);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    logits.bytes.assign(bytes.begin(), bytes.end());
    tensors.push_back(std::move(logits));
    // The goldens give the intermediates of one prompt, 'mid', bare names and those of the others a prefix.
    if (prompts.size() == 1 || prompt.name == "mid")
      std::ranges::move(trace.Tensors(""), std::back_inserter(tensors));
    std::ranges::move(trace.Tensors(prompt.name + "."), std::back_inserter(tensors));
  }
  MILLRACE_RETURN_IF_ERROR(WriteTensors(flags.out, tensors));
  fmt::print("{} tensors of {} prompts written to {}\n", tensors.size(), prompts.size(), flags.out);
  return {};
}

}  // namespace

void AddEvalCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command =
      root.add_subcommand("eval", "Write the logits of given token ids, for checks against goldens");
  command->add_option("checkpoint", flags->checkpoint, "Checkpoint directory")->required();
  command->add_option("--tokens", flags->tokens, "JSON file: {\"prompts\": {\"name\": [ids]}}")->required();
  command->add_option("--out", flags->out, "Safetensors file to write: logits.<name> F32 [length, vocab]")
      ->required();
  command
      ->add_option("--chunk", flags->chunk,
                   "Tokens of one pass, 0 for the whole prompt; the bits do not depend on it")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  AddNumericsFlag(*command, flags->numerics);
  command
      ->add_option("--threads", flags->threads,
                   "Threads, 0 for one a processor; the bits do not depend on it")
      ->check(CLI::Range(0, 1024));
  command->add_flag(
      "--layers", flags->layers,
      "Also write every layer's intermediates, as <prompt>.L<n>.<name>; without the prefix for a single "
      "prompt and for one named 'mid'");
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportStatus(Eval(*flags)); }; });
}

}  // namespace millrace::app
