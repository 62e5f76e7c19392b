#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/commands.h"
#include "app/number_check.h"
#include "formats/json.h"
#include "text/tokenizer.h"

namespace millrace::app {
namespace {

struct BenchTokenizerFlags {
  std::string tokenizer;
  std::vector<std::string> files;
  double seconds = 0.5;
  int64_t call_bytes = 0;  // 0: a file in one call
  bool json = false;
};

struct TokenizerRow {
  std::string file;
  size_t bytes = 0;
  size_t tokens = 0;
  double best_s = 0;  // processor time of one pass over the file

  double MegabytesPerSecond() const { return static_cast<double>(bytes) / best_s * 1e-6; }
};

Result<std::string> ReadText(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (!stream || text.empty()) {
    return Error(ErrorCode::kIo, fmt::format("{} cannot be read, or is empty", formats::Quoted(path)));
  }
  return text;
}

// Processor time, not the clock: whoever else runs must not count.
double ProcessorSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// Calls of about `bytes` that end between characters, as prompts do.
std::vector<std::string_view> Calls(std::string_view text, size_t bytes) {
  const auto is_inside = [&](size_t at) { return (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80; };
  std::vector<std::string_view> calls;
  while (!text.empty()) {
    size_t end = std::min(bytes, text.size());
    while (end < text.size() && is_inside(end)) ++end;
    calls.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return calls;
}

// The fastest of as many passes as `flags.seconds` allow, at least two; first the text must come back whole.
Result<TokenizerRow> Measure(const text::Tokenizer& tokenizer, const BenchTokenizerFlags& flags,
                             const std::string& file) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadText(file));
  const std::vector<std::string_view> calls =
      Calls(text, flags.call_bytes == 0 ? text.size() : static_cast<size_t>(flags.call_bytes));
  TokenizerRow row{.file = file, .bytes = text.size()};
  if (tokenizer.Decode(tokenizer.EncodeText(text)) != text) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("{} does not come back from its tokens; is it UTF-8?", formats::Quoted(file)));
  }
  std::vector<TokenId> ids;
  const double begin = ProcessorSeconds();
  for (int pass = 0; pass < 2 || ProcessorSeconds() - begin < flags.seconds; ++pass) {
    const double start = ProcessorSeconds();
    row.tokens = 0;
    for (const std::string_view call : calls) {
      ids.clear();
      tokenizer.AppendText(call, ids);
      row.tokens += ids.size();
    }
    const double seconds = ProcessorSeconds() - start;
    row.best_s = pass == 0 ? seconds : std::min(row.best_s, seconds);
  }
  return row;
}

Status BenchTokenizer(const BenchTokenizerFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::Tokenizer::Load(flags.tokenizer));
  boost::json::array rows;
  for (const std::string& file : flags.files) {
    MILLRACE_ASSIGN_OR_RETURN(const TokenizerRow row, Measure(tokenizer, flags, file));
    rows.push_back({{"file", row.file},
                    {"bytes", row.bytes},
                    {"tokens", row.tokens},
                    {"seconds", row.best_s},
                    {"mb_per_s", row.MegabytesPerSecond()}});
    if (flags.json) continue;
    fmt::print("{:<32} {:>9} bytes {:>9} tokens {:>8.2f} ms {:>8.1f} MB/s\n", row.file, row.bytes, row.tokens,
               row.best_s * 1e3, row.MegabytesPerSecond());
    std::fflush(stdout);
  }
  if (flags.json) fmt::print("{}\n", boost::json::serialize(rows));
  return {};
}

}  // namespace

void AddBenchTokenizerCommand(CLI::App& bench, Invocation& invocation) {
  auto flags = std::make_shared<BenchTokenizerFlags>();
  CLI::App* command = bench.add_subcommand(
      "tokenizer",
      "Speed of encoding text files, one thread; scripts/compare-tokenizers compares it with others");
  command->add_option("tokenizer", flags->tokenizer, "A tokenizer.json or the directory that holds one")
      ->required();
  command->add_option("files", flags->files, "Text files, UTF-8")->required();
  command->add_option("--seconds", flags->seconds, "Least time for a file")
      ->check(Between(0.0, 3600.0))
      ->capture_default_str();
  command->add_option("--call-bytes", flags->call_bytes, "Bytes of one call, about; 0: the whole file")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON array instead of lines");
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportRun(BenchTokenizer(*flags)); }; });
}

}  // namespace millrace::app
