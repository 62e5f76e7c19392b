// Speed of the released tokenizer. Bytes per second count UTF-8 input; only encoding (or decoding) is timed,
// after a check that the text comes back from its ids.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace millrace::text {
namespace {

constexpr size_t kLongPieceBytes = 100'000;

const Tokenizer& Released() {
  static const Tokenizer tokenizer = [] {
    auto loaded = Tokenizer::Load(MILLRACE_TOKENIZER_DIR);
    if (!loaded.ok()) {
      fmt::print(stderr, "{}\n", loaded.error().message());
      std::exit(1);
    }
    return *std::move(loaded);
  }();
  return tokenizer;
}

// All files below `directory` whose names end in `extension`, one after the other.
std::string Concatenated(const char* directory, std::string_view extension) {
  std::string text;
  const auto root = std::filesystem::path(MILLRACE_SOURCE_DIR) / directory;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.path().string().ends_with(extension)) continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    text.append(std::istreambuf_iterator<char>(stream), {});
  }
  return text;
}

std::string Repeated(std::string_view unit) {
  std::string text;
  while (text.size() < kLongPieceBytes) text += unit;
  return text;
}

// One call per `call_bytes` of the text, or one for all of it.
void Encode(benchmark::State& state, const std::string& text, size_t call_bytes) {
  if (Released().Decode(Released().EncodeText(text)) != text) return state.SkipWithError("text changed");
  size_t tokens = 0;
  for (auto unused : state) {
    tokens = 0;
    for (size_t at = 0; at < text.size(); at += call_bytes) {
      const auto ids = Released().EncodeText(std::string_view(text).substr(at, call_bytes));
      benchmark::DoNotOptimize(ids.data());
      tokens += ids.size();
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_token"] = static_cast<double>(text.size()) / static_cast<double>(tokens);
}

void Stream(benchmark::State& state, const std::string& text) {
  const auto ids = Released().EncodeText(text);
  for (auto unused : state) {
    StreamDecoder decoder(Released());
    for (const TokenId id : ids) benchmark::DoNotOptimize(decoder.Push(id));
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}

void Register() {
  static const std::string english = Concatenated("docs", ".md");
  static const std::string code = Concatenated("src", ".cc");
  benchmark::RegisterBenchmark("encode/english", Encode, english, english.size());
  benchmark::RegisterBenchmark("encode/english_4k_calls", Encode, english, size_t{4096});
  benchmark::RegisterBenchmark("encode/code", Encode, code, code.size());
  benchmark::RegisterBenchmark("encode/code_4k_calls", Encode, code, size_t{4096});
  for (const auto& [name, unit] :
       {std::pair("letters", "a"), std::pair("spaces", " "), std::pair("hyphens", "-"),
        std::pair("cjk", "漢"), std::pair("words", "ordinary ")}) {
    benchmark::RegisterBenchmark(fmt::format("encode/100KB_of_{}", name).c_str(), Encode, Repeated(unit),
                                 2 * kLongPieceBytes);
  }
  benchmark::RegisterBenchmark("stream/english", Stream, english);
}

}  // namespace
}  // namespace millrace::text

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  millrace::text::Register();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
