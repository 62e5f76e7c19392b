// The flags of `serve`: where they come from, and what the built program says of them.

#include "app/serve_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <CLI/CLI.hpp>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "app/flag_names.h"
#include "app/program_testing.h"
#include "app/settings.h"
#include "formats/scratch_dir.h"

namespace millrace::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class FixedEnvironment final : public Environment {
 public:
  explicit FixedEnvironment(std::map<std::string, std::string> variables)
      : variables_(std::move(variables)) {}
  std::optional<std::string> Get(const std::string& name) const override {
    const auto found = variables_.find(name);
    return found == variables_.end() ? std::nullopt : std::optional(found->second);
  }
  std::vector<std::string> Names(const std::string& prefix) const override {
    std::vector<std::string> names;
    for (const auto& [name, value] : variables_)
      if (name.starts_with(prefix)) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, std::string> variables_;
};

FixedEnvironment Env(std::map<std::string, std::string> variables) {
  return FixedEnvironment(std::move(variables));
}

std::string WriteFile(const std::string& name, const std::string& text, mode_t mode = 0600) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

class ServeFlagsTest : public ::testing::Test {
 protected:
  ServeFlagsTest() { AddServeFlags(command_, flags_); }

  void Parse(std::vector<std::string> args) {
    NormalizeFlags(args);
    std::reverse(args.begin(), args.end());
    command_.parse(args);
  }
  Settings MakeSettings() {
    return Settings(command_, {.not_settings = {"help", "config", "print-config"}, .secrets = {"api-key"}});
  }

  CLI::App command_{"", "serve"};
  ServeFlags flags_;
};

TEST_F(ServeFlagsTest, NamesOfOtherServersMeanTheSame) {
  Parse({"models/mini", "--max_queued_requests", "7", "-np", "9", "--ctx", "100"});
  EXPECT_EQ(flags_.checkpoint, "models/mini");
  EXPECT_EQ(flags_.max_model_len, "100");
  EXPECT_EQ(flags_.max_queue, 7);
  EXPECT_EQ(flags_.max_num_seqs, 9);
}

TEST_F(ServeFlagsTest, TheCommandLineWinsOverTheEnvironmentAndThatOverTheFile) {
  const std::string file = WriteFile(
      "layers.yaml", "model: /m\nport: 1\nhost: file\nserved_model_name: [a, b]\ndisable-log-stats: true\n");
  Parse({"--port", "3"});
  Settings settings = MakeSettings();
  const FixedEnvironment environment({{"MILLRACE_PORT", "2"},
                                      {"MILLRACE_HOST", "env"},
                                      {"MILLRACE_CORS_ALLOW_ORIGIN", "http://a,http://b"},
                                      {"MILLRACE_DISABLE_ACCESS_LOG", "true"}});
  ASSERT_TRUE(settings.ApplyEnvironment(environment).ok());
  const Status applied = settings.ApplyFile(file);
  ASSERT_TRUE(applied.ok()) << applied.error().message();
  EXPECT_EQ(flags_.http.port, 3);
  EXPECT_EQ(flags_.http.host, "env");
  EXPECT_EQ(flags_.checkpoint, "/m");
  EXPECT_THAT(flags_.served_model_names, ElementsAre("a", "b"));
  EXPECT_THAT(flags_.cors_origins, ElementsAre("http://a", "http://b"));
  EXPECT_TRUE(flags_.disable_log_stats);
  EXPECT_TRUE(flags_.disable_access_log);
  const std::string printed = settings.Print();
  EXPECT_THAT(printed, HasSubstr("port: 3  # command line\n"));
  EXPECT_THAT(printed, HasSubstr("host: env  # MILLRACE_HOST\n"));
  EXPECT_THAT(printed, HasSubstr("served-model-name: [a, b]  # " + file + ": line 4\n"));
  EXPECT_THAT(printed, HasSubstr("max-num-seqs: 4\n"));
  EXPECT_THAT(printed, HasSubstr("# max-total-tokens: not set\n"));
}

TEST_F(ServeFlagsTest, WhatIsPrintedIsReadBackTheSame) {
  Parse({"/m", "--max-body-size", "1MiB", "--body-timeout", "1.5", "--numerics", "reference",
         "--max-model-len", "-1", "--default-chat-template-kwargs", R"({"thinking":false})"});
  const std::string printed = MakeSettings().Print();
  CLI::App again("", "serve");
  ServeFlags read;
  AddServeFlags(again, read);
  again.parse(std::vector<std::string>{});
  Settings settings(again, {.not_settings = {"help", "config", "print-config"}, .secrets = {"api-key"}});
  const Status applied = settings.ApplyFile(WriteFile("printed.yaml", printed));
  ASSERT_TRUE(applied.ok()) << applied.error().message() << "\n" << printed;
  EXPECT_EQ(read.http.max_body_bytes, size_t{1} << 20);
  EXPECT_EQ(read.http.body_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(read.numerics, model::Numerics::kReference);
  EXPECT_EQ(read.max_model_len, "-1");
  EXPECT_EQ(read.default_chat_template_kwargs, R"({"thinking":false})");
  EXPECT_EQ(read.http.max_connections, flags_.http.max_connections);
}

TEST_F(ServeFlagsTest, KeysAreNeitherPrintedNorTakenFromTheirVariableTwice) {
  Parse({"/m", "--api-key", "sk-secret", "--api-key", "sk-other"});
  Settings settings = MakeSettings();
  ASSERT_TRUE(settings.ApplyEnvironment(Env({{"MILLRACE_API_KEY", "sk-env"}})).ok());
  EXPECT_THAT(settings.Print(), HasSubstr("# api-key: 2 given, not shown\n"));
  EXPECT_THAT(settings.Print(), Not(HasSubstr("sk-")));
}

TEST_F(ServeFlagsTest, WrongSettingsNameTheirPlace) {
  Parse({"/m"});
  const auto file_error = [&](const std::string& text) {
    const Status status = MakeSettings().ApplyFile(WriteFile("wrong.yaml", text));
    return status.ok() ? "accepted" : status.error().message();
  };
  EXPECT_THAT(file_error("max-num-seq: 4"),
              HasSubstr("wrong.yaml: line 1: unknown key 'max-num-seq': did you mean max-num-seqs?"));
  EXPECT_THAT(file_error("print-config: true"), HasSubstr("unknown key 'print-config'"));
  EXPECT_THAT(file_error("# a\nport: many"), HasSubstr("wrong.yaml: line 2: "));
  EXPECT_THAT(file_error("ctx: 4\nctx-size: 5"),
              HasSubstr("line 2: 'ctx' and 'ctx-size' are the same setting"));
  EXPECT_THAT(file_error("host: [a, b]"), HasSubstr("takes one value"));
  const auto env_error = [&](const std::string& name, const std::string& value) {
    const Status status = MakeSettings().ApplyEnvironment(Env({{name, value}}));
    return status.ok() ? "accepted" : status.error().message();
  };
  EXPECT_THAT(env_error("MILLRACE_MAX_NUM_SEQS", "0"), HasSubstr("MILLRACE_MAX_NUM_SEQS: "));
  EXPECT_THAT(env_error("MILLRACE_THREADS", ""), HasSubstr("MILLRACE_THREADS is set but empty"));
  EXPECT_THAT(
      MakeSettings().UnknownVariables(Env({{"MILLRACE_PROT", "1"}, {"MILLRACE_PORT", "1"}})),
      ElementsAre("the environment variable MILLRACE_PROT stands for no flag: did you mean MILLRACE_PORT?"));
}

TEST_F(ServeFlagsTest, TheScheduleReachesTheEngineAndTheService) {
  Parse({"/m", "--scheduling-policy", "shortest", "--itl-target-ms", "120", "--min-decode-share", "0.5",
         "--request-timeout", "90", "--max-queue-seconds", "7", "--slow-step", "3", "--stuck-seconds", "40"});
  const engine::EngineOptions options = ToEngineOptions(flags_);
  EXPECT_EQ(options.schedule_policy, engine::SchedulePolicy::kShortest);
  EXPECT_EQ(options.pace.max_gap_seconds, 0.12);
  EXPECT_EQ(options.pace.min_decode_share, 0.5);
  EXPECT_EQ(options.max_queue_seconds, 7);
  EXPECT_EQ(options.watchdog.slow_step_seconds, 3);
  EXPECT_EQ(options.watchdog.stuck_after_seconds, 40);
  EXPECT_EQ(ToServiceOptions(flags_, {})->request_timeout_seconds, 90);
  EXPECT_THAT(MakeSettings().Print(), HasSubstr("schedule-policy: shortest  # command line\n"));
  EXPECT_THROW(Parse({"/m", "--schedule-policy", "lpm"}), CLI::ValidationError);
}

TEST_F(ServeFlagsTest, DefaultsAreThoseOfTheEngine) {
  Parse({"/m"});
  const engine::EngineOptions options = ToEngineOptions(flags_);
  EXPECT_EQ(options.schedule_policy, engine::SchedulePolicy::kFair);
  EXPECT_EQ(options.pace.max_gap_seconds, engine::PaceOptions().max_gap_seconds);
  EXPECT_EQ(options.watchdog.stuck_after_seconds, engine::WatchdogOptions().stuck_after_seconds);
  EXPECT_EQ(options.max_queue_seconds, 0);
}

TEST_F(ServeFlagsTest, SizesMayBeAutomatic) {
  Parse({"/m", "--max-num-seqs", "auto", "--ram", "96GB"});
  EXPECT_FALSE(flags_.max_num_seqs.has_value());
  EXPECT_EQ(ToBudget(flags_)->bytes, 96'000'000'000u);
  EXPECT_FALSE(ToBudget(flags_)->of_machine);
  EXPECT_TRUE(ToAutomaticSizes(flags_).max_num_seqs);
  EXPECT_TRUE(ToAutomaticSizes(flags_).max_model_len);
  flags_.max_model_len = "4096";
  flags_.ram_bytes.reset();
  EXPECT_FALSE(ToAutomaticSizes(flags_).max_model_len);
  EXPECT_TRUE(ToBudget(flags_)->of_machine);
}

TEST_F(ServeFlagsTest, APoolTooSmallForTheGivenContextIsRefused) {
  Parse({"/m", "--max-model-len", "32768", "--max-total-tokens", "1000"});
  const auto refused = ToLoadOptions(flags_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("--max-total-tokens is 1000, less than one sequence of "
                                                   "--max-model-len 32768"));
  flags_.max_model_len = "auto";
  EXPECT_TRUE(ToLoadOptions(flags_).ok());
}

TEST_F(ServeFlagsTest, NothingNeedBeRemembered) {
  Parse({"/m", "--replay-size", "0"});
  EXPECT_EQ(flags_.replay_bytes, 0u);
}

TEST_F(ServeFlagsTest, AnswersHaveTheMemoryThatTheyAreGiven) {
  Parse({"/m", "--max-answers-size", "3MiB", "--max-queue", "7"});
  const auto options = ToServiceOptions(flags_, {});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_answers_bytes, size_t{3} << 20);
  EXPECT_EQ(options->max_queue, 7) << "the plan has something for every place";
}

TEST_F(ServeFlagsTest, ListenIsHostAndPort) {
  flags_.listen = "[::1]:81";
  EXPECT_EQ(ToHttpOptions(flags_)->host, "::1");
  EXPECT_EQ(ToHttpOptions(flags_)->port, 81);
  for (const char* wrong : {"8000", "a:", ":80", "a:99999", "a:8x"}) {
    flags_.listen = wrong;
    EXPECT_FALSE(ToHttpOptions(flags_).ok()) << wrong;
  }
}

TEST_F(ServeFlagsTest, ServiceOptionsNameTheFlagThatIsWrong) {
  flags_.checkpoint = "models/mini/";
  flags_.cors_origins = {R"(["http://a", "http://b"])", "*"};
  const auto options = ToServiceOptions(flags_, {"k"});
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->served_model_names, ElementsAre("mini"));
  EXPECT_THAT(options->cors_origins, ElementsAre("http://a", "http://b", "*"));
  flags_.default_chat_template_kwargs = R"({"think":1})";
  EXPECT_THAT(ToServiceOptions(flags_, {}).error().message(),
              HasSubstr("--default-chat-template-kwargs: 'think' is no default"));
}

TEST_F(ServeFlagsTest, FlagsThatChangeNothingLeaveANote) {
  Parse({"/m", "--enable-auto-tool-choice", "--tool-call-parser", "deepseek_v41", "--tp", "1"});
  EXPECT_THAT(flags_.notes,
              IsSupersetOf({"--tool-call-parser changes nothing: the model's own tool format is built in",
                            "--tensor-parallel-size changes nothing: it runs in one process"}));
  EXPECT_EQ(flags_.notes.size(), 3u);
}

TEST_F(ServeFlagsTest, AValueThatThisServerDoesNotDoIsRefused) {
  EXPECT_THROW(Parse({"/m", "--tp", "4"}), CLI::ValidationError);
}

TEST(ApiKeySources, FilesFlagsAndEnvironment) {
  const FixedEnvironment both({{"MILLRACE_API_KEY", "sk-m"}, {"VLLM_API_KEY", "sk-v"}});
  EXPECT_THAT(CollectApiKeys({}, both)->keys, ElementsAre("sk-m"));
  EXPECT_THAT(CollectApiKeys({}, Env({{"VLLM_API_KEY", "sk-v"}}))->keys, ElementsAre("sk-v"));
  EXPECT_TRUE(CollectApiKeys({}, Env({}))->keys.empty());
  const std::string file = WriteFile("keys", "# ours\nsk-1\n\n  \nsk-2  \r\n");
  const auto collected = CollectApiKeys({.keys = {"sk-0"}, .files = {file}}, both);
  ASSERT_TRUE(collected.ok()) << collected.error().message();
  EXPECT_THAT(collected->keys, ElementsAre("sk-0", "sk-1", "sk-2"));
  EXPECT_TRUE(collected->warnings.empty());
  const std::string readable = WriteFile("readable-keys", "sk-1\n", 0644);
  EXPECT_THAT(CollectApiKeys({.keys = {}, .files = {readable}}, both)->warnings,
              ElementsAre(HasSubstr("can be read by other users (mode 0644)")));
}

TEST(ApiKeySources, NoMistakeOpensTheServer) {
  const FixedEnvironment none({});
  EXPECT_FALSE(CollectApiKeys({}, Env({{"MILLRACE_API_KEY", ""}})).ok());
  EXPECT_FALSE(CollectApiKeys({.keys = {""}, .files = {}}, none).ok());
  EXPECT_FALSE(CollectApiKeys({.keys = {}, .files = {"/nonexistent"}}, none).ok());
  EXPECT_FALSE(CollectApiKeys({.keys = {}, .files = {WriteFile("no-keys", "# none\n")}}, none).ok());
  const auto spaced = CollectApiKeys({.keys = {"sk secret"}, .files = {}}, none);
  ASSERT_FALSE(spaced.ok());
  EXPECT_THAT(spaced.error().message(), Not(HasSubstr("secret")));
}

TEST(FlagNames, TheNearestIsFoundAndNothingFarIs) {
  const std::vector<std::string> names = {"--port", "--host", "--max-num-seqs", "--max-model-len"};
  EXPECT_EQ(NearestName("--prot", names), "--port");
  EXPECT_EQ(NearestName("--max-num-seq", names), "--max-num-seqs");
  EXPECT_EQ(NearestName("--max-modellen", names), "--max-model-len");
  EXPECT_EQ(NearestName("--quantization", names), "");
}

TEST(FlagNames, OnlyNamesAreRewritten) {
  std::vector<std::string> args = {"--served_model_name=a_b", "c_d", "-np", "2", "--", "--e_f"};
  NormalizeFlags(args);
  EXPECT_THAT(args, ElementsAre("--served-model-name=a_b", "c_d", "--parallel", "2", "--", "--e_f"));
}

std::set<std::string> FlagsIn(const std::string& text, const std::regex& line_form) {
  std::set<std::string> flags;
  const std::regex flag("--[a-z][a-z-]*");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch head;
    if (!std::regex_search(line, head, line_form)) continue;
    const std::string names = head[1];
    for (std::sregex_iterator at(names.begin(), names.end(), flag), end; at != end; ++at)
      flags.insert(at->str());
  }
  return flags;
}

TEST(ServeProgram, TheDocumentAndTheHelpListTheSameFlags) {
  std::ifstream file(MILLRACE_SOURCE_DIR "/docs/serving.md");
  std::stringstream document;
  document << file.rdbuf();
  const std::set<std::string> documented = FlagsIn(document.str(), std::regex("^(\\| `-.*)\\|[^|]*\\|$"));
  const std::set<std::string> listed =
      FlagsIn(RunShell(kMillrace + " serve --help").output, std::regex("^  (-[^ ]+)"));
  EXPECT_GT(listed.size(), 60u);
  EXPECT_EQ(documented, listed);
}

TEST(BenchServeProgram, TheDocumentAndTheHelpListTheSameFlags) {
  std::ifstream file(MILLRACE_SOURCE_DIR "/docs/bench-serve.md");
  std::stringstream document;
  document << file.rdbuf();
  const std::set<std::string> documented = FlagsIn(document.str(), std::regex("^(\\| `-.*)\\|[^|]*\\|$"));
  const std::string help =
      RunShell(kMillrace + " bench serve --help").output + RunShell(kMillrace + " bench soak --help").output;
  std::set<std::string> listed = FlagsIn(help, std::regex("^  ((url )?-[^ ]+)"));
  for (const char* flag : {"--help", "--help-all"}) listed.erase(flag);
  EXPECT_GT(listed.size(), 40u);
  EXPECT_EQ(documented, listed);
}

TEST(BenchServeProgram, ASilentServerAndAWrongLineAreToldApart) {
  const std::string serve = kMillrace + " bench serve ";
  // Nothing listens on the discard port of any sane machine.
  const Finished nobody = RunShell(serve + "http://127.0.0.1:9");
  EXPECT_EQ(nobody.status, 1);
  EXPECT_THAT(nobody.output, HasSubstr("http://127.0.0.1:9/v1/models: no connection: "));
  const Finished tls = RunShell(serve + "https://127.0.0.1:9");
  EXPECT_EQ(tls.status, 2);
  EXPECT_THAT(tls.output, HasSubstr("TLS"));
  EXPECT_THAT(RunShell(serve + "127.0.0.1:9 --extra-body '[1]'").output, HasSubstr("--extra-body '[1]'"));
  for (const char* wrong : {"", "127.0.0.1:9 --needles 2 --conversations 2", "127.0.0.1:9 --request-rate 0",
                            "127.0.0.1:9 --temperature 3", "127.0.0.1:9 --dataset-name sharegpt"})
    EXPECT_EQ(RunShell(serve + wrong).status, 2) << wrong;
}

TEST(ServeProgram, AnUnknownFlagIsRefusedWithTheNearest) {
  const Finished unknown = RunShell(kMillrace + " serve models/mini --max-num-seq 4");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.output,
            "millrace: unknown flag '--max-num-seq': did you mean --max-num-seqs? 'millrace serve --help' "
            "lists all\n");
  EXPECT_EQ(RunShell(kMillrace + " serve").status, 2);
  EXPECT_THAT(RunShell(kMillrace + " serv").output, HasSubstr("did you mean serve?"));
}

TEST(ServeProgram, AWrongCommandLineIsToldInItsOwnWords) {
  const formats::ScratchDir dir;
  dir.Write("config.json", " {\"model_type\": \"x\"}");
  const auto refused = [](const std::string& arguments, const std::string& words) {
    const Finished finished = RunShell(kMillrace + " " + arguments);
    EXPECT_EQ(finished.status, 2) << arguments;
    EXPECT_THAT(finished.output, testing::StartsWith("millrace: " + words)) << arguments;
  };
  refused("serve /nowhere --port 80000", "--port: Value 80000 not in range");
  refused("serve /nowhere --port abc", "--port: Value abc not in range");
  refused("serve /nowhere --max-num-seqs 0", "--max-num-seqs: '0' is no number from 1 to ");
  refused("serve /nowhere --parallel=many", "--parallel: 'many' is no number from 1 to ");
  refused("serve /nowhere --tp 2", "--tp: 2 not in {1}");
  refused("serve /nowhere --tensor_parallel_size 2", "--tensor-parallel-size: 2 not in {1}");
  refused("serve /nowhere --config " + (dir.path() / "config.json").string(),
          (dir.path() / "config.json").string() + " is JSON, as the config.json of a model is");
  refused("serve /nowhere --default-chat-template-kwargs '{bad'",
          "--default-chat-template-kwargs: '{bad' is not a JSON object");
  refused("bench serve", "the server's URL is required");
  refused("bench soak", "the server's URL is required");
  refused("bench", "A subcommand is required");
  EXPECT_THAT(RunShell(kMillrace + " plan /nonexistent").output,
              testing::StartsWith("millrace: /nonexistent does not exist"));
}

TEST(ServeProgram, PrintsItsConfigurationWithoutKeys) {
  const Finished printed = RunShell("MILLRACE_API_KEY=sk-env " + kMillrace +
                                    " serve /nowhere --api-key sk-secret --port 81 --print-config");
  EXPECT_EQ(printed.status, 0) << printed.output;
  EXPECT_THAT(printed.output, HasSubstr("\nport: 81  # command line\n"));
  EXPECT_THAT(printed.output, Not(HasSubstr("sk-")));
  const Finished by_variable =
      RunShell("MILLRACE_API_KEY=sk-env " + kMillrace + " serve /nowhere --print-config");
  EXPECT_THAT(by_variable.output, HasSubstr("# keys that open the server, from all sources: 1\n"));
  const Finished wrong = RunShell("MILLRACE_PORT=many " + kMillrace + " serve /nowhere --print-config");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("millrace: MILLRACE_PORT: "));
}

// Numbers that a range check by comparison, or a conversion to unsigned, would let pass.
TEST(ServeProgram, RefusesNumbersThatAreNoLimits) {
  for (const char* flag :
       {"--stream-keep-alive nan", "--stuck-after nan", "--min-decode-share nan", "--min-decode-share 1.1",
        "--shutdown-timeout nan", "--idle-timeout inf", "--log-stats-interval nan", "--ram -4GiB",
        "--max-body-size -1", "--max-body-size 0", "--max-body-size 2TiB"}) {
    const Finished refused = RunShell(kMillrace + " serve /nowhere --print-config " + flag);
    EXPECT_EQ(refused.status, 2) << flag << refused.output;
    EXPECT_THAT(refused.output, HasSubstr("not in range")) << flag;
  }
  const Finished accepted =
      RunShell(kMillrace + " serve /nowhere --print-config --max-body-size 1MiB --idle-timeout 0.5");
  EXPECT_EQ(accepted.status, 0) << accepted.output;
}

TEST(ServeProgram, SaysWhatItIs) {
  const Finished version = RunShell(kMillrace + " --version");
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.output, HasSubstr("millrace 0."));
  EXPECT_THAT(version.output, HasSubstr("instruction sets: "));
}

TEST(ServeProgram, CompletesCommandsAndFlagsInBash) {
  const auto complete = [](const std::string& typed) {
    return RunShell("bash -c '. <(" + kMillrace + " completion bash); COMP_WORDS=(" + typed +
                    "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _millrace; echo \"${COMPREPLY[*]}\"'")
        .output;
  };
  EXPECT_EQ(complete("millrace ser"), "serve\n");
  EXPECT_EQ(complete("millrace serve --max-num-s"), "--max-num-seqs\n");
  EXPECT_EQ(complete("millrace completion --max-num-s"), "\n");
  EXPECT_EQ(RunShell(kMillrace + " completion tcsh").status, 1);
  for (const char* shell : {"zsh", "fish"})
    EXPECT_THAT(RunShell(kMillrace + " completion " + shell).output, HasSubstr("max-num-seqs"));
}

}  // namespace
}  // namespace millrace::app
