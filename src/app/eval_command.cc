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
#include "cache/page_pool.h"
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
  std::string numerics = "reference";
  int64_t chunk = 0;
  int threads = 0;
  bool layers = false;
};

struct Prompt {
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
Result<std::vector<Prompt>> ReadPrompts(const std::string& file, int64_t vocab_size) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, formats::ReadTextFile(file, kMaxPromptFileBytes));
  MILLRACE_ASSIGN_OR_RETURN(const json::value root,
                            formats::ParseJson(text, {.max_bytes = kMaxPromptFileBytes}));
  const json::object* object = root.if_object();
  const json::value* prompts = object == nullptr ? nullptr : object->if_contains("prompts");
  if (prompts == nullptr || !prompts->is_object() || prompts->get_object().empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "expected {\"prompts\": {\"name\": [ids], ...}} with at least one prompt");
  }
  std::vector<Prompt> all;
  for (const auto& [name, value] : prompts->get_object()) {
    Result<std::vector<TokenId>> ids = ReadIds(value, vocab_size);
    if (!ids.ok()) return ids.error().In(fmt::format("prompts.{}", std::string_view(name)));
    all.push_back({.name = name, .ids = std::move(ids).value()});
  }
  return all;
}

// One prompt, alone, in chunks; its logits [length, vocab] are appended to `tensors`, and the layers with
// them.
class Evaluator {
 public:
  static Result<std::unique_ptr<Evaluator>> Create(const model::Checkpoint& checkpoint, ThreadPool& pool,
                                                   int64_t chunk, int64_t longest) {
    MILLRACE_ASSIGN_OR_RETURN(model::EngramHash hash,
                              model::EngramHash::ForCheckpoint(checkpoint.config(), checkpoint.dir()));
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<model::Forward> forward,
                              model::Forward::Create(checkpoint, std::move(hash), pool,
                                                     {.max_batch_tokens = chunk, .max_batch_items = 1}));
    const auto n_pages = static_cast<uint32_t>((longest + model::kPageTokens - 1) / model::kPageTokens);
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<cache::PagePool> pages,
                              cache::PagePool::Create(forward->page_layout().page_bytes, n_pages));
    auto evaluator = std::make_unique<Evaluator>();
    evaluator->chunk_ = chunk;
    evaluator->vocab_size_ = checkpoint.config().vocab_size;
    evaluator->state_ = std::make_unique<model::SequenceState>(forward->plan());
    std::vector<PageId> ids;
    MILLRACE_RETURN_IF_ERROR(pages->AllocateMany(n_pages, ids));
    for (PageId id : ids) evaluator->state_->pages.push_back(pages->Data(id));
    evaluator->forward_ = std::move(forward);
    evaluator->pages_ = std::move(pages);
    return evaluator;
  }

  EvalTensor Run(const Prompt& prompt, model::LayerTrace* trace) {
    state_->Reset();
    const auto vocab = static_cast<size_t>(vocab_size_);
    EvalTensor out;
    out.info.name = "logits." + prompt.name;
    out.info.dtype = formats::DType::kF32;
    out.info.shape = {static_cast<int64_t>(prompt.ids.size()), vocab_size_};
    out.bytes.resize(prompt.ids.size() * vocab * sizeof(float));
    std::vector<float> logits(static_cast<size_t>(chunk_) * vocab);
    for (size_t at = 0; at < prompt.ids.size(); at += static_cast<size_t>(chunk_)) {
      const size_t n = std::min(static_cast<size_t>(chunk_), prompt.ids.size() - at);
      const model::BatchItem item{.state = state_.get(),
                                  .tokens = std::span(prompt.ids).subspan(at, n),
                                  .logits = model::LogitsWanted::kAll};
      forward_->Run(std::span(&item, 1), logits, trace);
      std::ranges::copy(std::as_bytes(std::span(logits).first(n * vocab)),
                        out.bytes.begin() + static_cast<std::ptrdiff_t>(at * vocab * sizeof(float)));
    }
    return out;
  }

 private:
  std::unique_ptr<model::Forward> forward_;
  std::unique_ptr<cache::PagePool> pages_;
  std::unique_ptr<model::SequenceState> state_;
  int64_t chunk_ = 0;
  int64_t vocab_size_ = 0;
};

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
  if (flags.numerics != "reference") {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--numerics is '{}'; only 'reference' is built", flags.numerics));
  }
  MILLRACE_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::Open(flags.checkpoint));
  Result<std::vector<Prompt>> read = ReadPrompts(flags.tokens, checkpoint.config().vocab_size);
  if (!read.ok()) return read.error().In(flags.tokens);
  const std::vector<Prompt>& prompts = *read;
  MILLRACE_RETURN_IF_ERROR(CheckOut(flags));
  int64_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, static_cast<int64_t>(prompt.ids.size()));
  if (longest > checkpoint.config().max_position_embeddings) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: a prompt has {} tokens, the checkpoint's max_position_embeddings is {}",
                             flags.tokens, longest, checkpoint.config().max_position_embeddings));
  }
  const int64_t chunk = flags.chunk == 0 ? longest : std::min(flags.chunk, longest);
  ThreadPool pool(flags.threads == 0 ? engine::UsableProcessors() : flags.threads);
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Evaluator> evaluator,
                            Evaluator::Create(checkpoint, pool, chunk, longest));
  std::vector<EvalTensor> tensors;
  for (const Prompt& prompt : prompts) {
    EvalTrace trace;
    tensors.push_back(evaluator->Run(prompt, flags.layers ? &trace : nullptr));
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
  command->add_option("--numerics", flags->numerics,
                      "reference: float32 activations, weights decoded exactly");
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
