// What holds for subcommands alike, by the built program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "app/program_testing.h"
#include "formats/scratch_dir.h"

namespace millrace::app {
namespace {

using ::testing::HasSubstr;

const std::string kMini = MILLRACE_SOURCE_DIR "/models/mini";
const std::string kConfig = MILLRACE_SOURCE_DIR "/tests/data/config/released.json";

// A default of one flag beside that of another has ended other programs. `serve` has tests of its own, and
// benchmarks that take minutes have theirs beside their code.
TEST(Subcommands, DoWithoutOneOptionalFlag) {
  const formats::ScratchDir dir;
  dir.Write("ids.json", R"({"prompts": {"a": [0, 5, 6]}})");
  dir.Write("text", "a few words\n");
  const std::string at = dir.path().string() + "/";
  const std::vector<std::pair<std::string, std::string>> commands = {
      {"bench numerics " + kMini, ""},
      {"bench tokenizer " + kMini + " " + at + "text", ""},
      {"chat " + kMini, "hello"},
      {"completion bash", ""},
      {"encode-chat --tokenizer " + kMini, "[]"},
      {"eval " + kMini + " --tokens " + at + "ids.json --out " + at + "out", ""},
      {"generate " + kMini + " --prompt hello", ""},
      {"inspect " + kMini, ""},
      {"make-checkpoint --preset tiny " + at + "made", ""},
      {"parse-chat", R"({"declared_tools": {}, "cases": []})"},
      {"plan " + kMini, ""},
      {"plan --config " + kConfig + " --device 640GiB", ""},
      {"tokenize --tokenizer " + kMini, R"({"cases": [{"id": "a", "text": "hello"}]})"},
  };
  for (const auto& [command, input] : commands) {
    const Finished finished = RunShell("echo '" + input + "' | " + kMillrace + " " + command);
    EXPECT_EQ(finished.status, 0) << command << "\n" << finished.output;
  }
}

TEST(BenchProgram, WrongUsageIsToldFromWhatFailed) {
  const auto usage = [](const std::string& arguments, const std::string& words) {
    const Finished bench = RunShell(kMillrace + " bench " + arguments);
    EXPECT_EQ(bench.status, 2) << arguments << bench.output;
    EXPECT_THAT(bench.output, HasSubstr(words)) << arguments;
  };
  const std::string url = "http://127.0.0.1:9 ";
  for (const char* load : {"serve ", "soak "}) {
    usage(load + std::string("ftp://127.0.0.1:9"), "is not an http URL");
    usage(load + url + "--extra-body '[1]'", "is not a JSON object");
    usage(load + url + "--api-key-file /nonexistent", "/nonexistent");
    usage(load + url + "--timeout nan", "not in range");
    usage(load + url + "--tokens-per-word nan", "not in range");
    EXPECT_EQ(RunShell(kMillrace + " bench " + load + url).status, 1) << load;
  }
  for (const char* rate : {"nan", "-1", "-inf", "0", "1e-9"})
    usage("serve " + url + "--request-rate " + rate,
          "--request-rate: Value " + std::string(rate) + " not in");
  EXPECT_EQ(RunShell(kMillrace + " bench serve " + url + "--request-rate inf").status, 1);  // a closed loop
  usage("soak " + url + "--duration nan", "not in range");
  usage("soak " + url + "--disconnect-rate nan", "not in range");
  usage("kernels --filter nothing-like-it", "is in no case's name");
  usage("numerics " + kMini + " --length 65536", "max_position_embeddings");
  EXPECT_EQ(RunShell(kMillrace + " bench numerics /nonexistent").status, 1);
  EXPECT_EQ(RunShell(kMillrace + " bench tokenizer " + kMini + " /nonexistent").status, 1);
}

}  // namespace
}  // namespace millrace::app
