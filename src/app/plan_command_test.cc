// `millrace plan` and the plan of `millrace serve`, by the built program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <string>

#include "app/program_testing.h"
#include "base/units.h"
#include "formats/scratch_dir.h"

namespace millrace::app {
namespace {

namespace json = boost::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kReleased = " --config " MILLRACE_SOURCE_DIR "/tests/data/config/released.json ";
const std::string kMini = " " MILLRACE_SOURCE_DIR "/models/mini ";

TEST(PlanCommand, NeedsNothingButAConfig) {
  const Finished plan = RunShell(kMillrace + " plan" + kReleased + "--ram 512GiB");
  EXPECT_EQ(plan.status, 0) << plan.output;
  EXPECT_THAT(plan.output, HasSubstr("weights, routed experts        268.95 GiB     288,777,830,400\n"));
  EXPECT_THAT(plan.output, HasSubstr("kv pages"));
  EXPECT_THAT(plan.output, HasSubstr("fits: budget 512.00 GiB (--ram)"));
}

TEST(PlanCommand, WhatDoesNotFitEndsWithTheOneSettingThatWould) {
  std::map<std::string, std::string> flags = {
      {"--ram", "475GiB"}, {"--max-model-len", "1048576"}, {"--max-num-seqs", "64"}};
  const auto run = [&](const std::string& more) {
    std::string command = kMillrace + " plan" + kReleased + more;
    for (const auto& [flag, value] : flags) command += " " + flag + " " + value;
    return RunShell(command);
  };
  const Finished refused = run("--json");
  EXPECT_EQ(refused.status, 1);
  const json::value remedy = json::parse(refused.output).at("verdict").at("remedy");
  const std::string flag(remedy.at("flag").as_string());
  ASSERT_TRUE(flags.contains(flag)) << flag;
  flags[flag] = std::string(remedy.at("value").as_string());
  const Finished fixed = run("");
  EXPECT_EQ(fixed.status, 0) << fixed.output;
}

// What docs/planning.md shows: commands behind "$ ", each with its output
// ("[...]": what is left out of it), in blocks of code. But for the
// line that depends on the machine's processors.
TEST(PlanCommand, PrintsWhatTheDocumentShows) {
  std::ifstream file(MILLRACE_SOURCE_DIR "/docs/planning.md");
  std::map<std::string, std::string> shown;
  std::string* output = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("$ millrace plan --config config.json ")) {
      output = &shown[line.substr(line.find("--device"))];
    } else if (line.starts_with("```")) {
      output = nullptr;
    } else if (output != nullptr && !line.starts_with("off the cards: threads")) {
      *output += line + "\n";
    }
  }
  ASSERT_EQ(shown.size(), 3u);
  for (const auto& [flags, expected] : shown) {
    const Finished plan = RunShell(kMillrace + " plan" + kReleased + flags);
    const std::string printed = std::regex_replace(plan.output, std::regex("off the cards: threads.*\n"), "");
    if (const std::string left_out = "[...]\n"; expected.starts_with(left_out)) {
      EXPECT_THAT(printed, EndsWith("\n" + expected.substr(left_out.size()))) << flags;
    } else {
      EXPECT_EQ(printed, expected) << flags;
    }
  }
}

TEST(PlanCommand, TheRigOfUnequalCards) {
  const std::string cards = "--device 96GB --device 84GiB --device 84GiB --device 84GiB ";
  const Finished text = RunShell(kMillrace + " plan" + kReleased + cards);
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output,
              HasSubstr("experts of each layer               108           92           92           92\n"));
  EXPECT_THAT(text.output, HasSubstr("a session of 1,048,576 tokens: 890.00 MiB of pages on every card;"));
  EXPECT_THAT(text.output, HasSubstr("sessions of 1,048,576 tokens that fit: 11\n"));
  const json::value plan = json::parse(RunShell(kMillrace + " plan" + kReleased + cards + "--json").output);
  EXPECT_EQ(plan.at("cards").at(1).at("experts").as_int64(), 92);
  EXPECT_EQ(plan.at("sessions").as_int64(), 11);
  const Finished most = RunShell(kMillrace + " plan" + kReleased + cards + "--max-num-seqs auto --json");
  EXPECT_EQ(json::parse(most.output).at("settings").at("max-num-seqs").as_int64(), 11);
  const Finished small =
      RunShell(kMillrace + " plan" + kReleased + "--device 48GB --device 24GB --device 24GB");
  EXPECT_EQ(small.status, 1);
  EXPECT_THAT(small.output, HasSubstr("does not fit: card 1 lacks "));
  EXPECT_THAT(small.output, HasSubstr("what would fit: "));
}

// 2 for what makes no sense whatever the world is like, 1 for what does not fit or cannot be read.
TEST(PlanCommand, WrongUsageIsToldApart) {
  const std::string cards = "--device 96GB --device 84GiB ";
  const auto usage = [](const std::string& arguments, const std::string& words) {
    const Finished plan = RunShell(kMillrace + " plan" + arguments);
    EXPECT_EQ(plan.status, 2) << arguments << plan.output;
    EXPECT_THAT(plan.output, HasSubstr(words));
  };
  usage("", "nothing to plan: give a checkpoint directory, or --config");
  usage(kReleased + "--device 84XB", "--device: Value 84XB is no size");
  usage(kReleased + "--max-num-seqs 0", "--max-num-seqs");
  usage(kReleased + "--max-model-len 1", "at least 2 (prompt and answer)");
  usage(kReleased + "--max-model-len 99999999999999999999", "--max-model-len is '99999999999999999999'");
  usage(kReleased + "--max-model-len 1048577", "it must be from 2 to 1048576");
  usage(kReleased + "--max-body-size 99999999999TiB", "not in range 1 B to 1 TiB");
  usage(kReleased + kMini, "both a checkpoint");
  usage(kReleased + kReleased, "give one");
  usage(kReleased + cards + "--tp 3", "--tp is 3");
  usage(kReleased + cards + "--ram 96GiB", "leave out --ram");
  for (const char* flag : {"--tp 2", "--ep 2", "--engram device", "--device-reserve 2GiB", "--dspark off",
                           "--language-model-only"})
    usage(kReleased + flag, " is for rigs of cards and there is none; give --device BYTES");
  EXPECT_EQ(RunShell(kMillrace + " plan --config /nonexistent.json").status, 1);
  EXPECT_EQ(RunShell(kMillrace + " plan /nonexistent").status, 1);
  EXPECT_EQ(RunShell(kMillrace + " plan" + kReleased + "--ram 1PiB").status, 0);
  EXPECT_EQ(RunShell(kMillrace + " plan" + kReleased + "--ram 512GiB --tp 1").status, 0);
}

TEST(PlanCommand, APoolOfCardsCanBeGiven) {
  const std::string cards = "--device 96GB --device 84GiB --device 84GiB --device 84GiB ";
  const Finished plan =
      RunShell(kMillrace + " plan" + kReleased + cards + "--max-total-tokens 2097152 --json");
  EXPECT_EQ(plan.status, 0) << plan.output;
  EXPECT_EQ(json::parse(plan.output).at("pool_tokens").as_int64(), 2097152);
}

// The same flags, variables and files mean the same to plan and to serve, checkpoint included.
TEST(PlanCommand, PlansWhatServeWouldWithTheSameEnvironmentAndFiles) {
  const formats::ScratchDir dir;
  dir.Write("serve.yaml", "max-model-len: 4096\nport: 0\nserved-model-name: [a, b]\ndevice: cpu\n");
  const std::string file = " --config " + (dir.path() / "serve.yaml").string() + " ";
  const std::string environment =
      "MILLRACE_MAX_NUM_SEQS=3 MILLRACE_RAM=100MiB MILLRACE_MODEL=" + kMini.substr(1, kMini.size() - 2) +
      " MILLRACE_TP=1 ";
  const std::string flags = file + "--threads 2 --max-queue 5";
  const Finished plan = RunShell(environment + kMillrace + " plan" + flags);
  EXPECT_EQ(plan.status, 1);
  EXPECT_THAT(plan.output, HasSubstr("--max-model-len 4096, --max-num-seqs 3"));
  EXPECT_THAT(plan.output, HasSubstr("budget of 100.00 MiB (--ram)"));
  const Finished serve = RunShell(environment + kMillrace + " serve" + flags + " --log-level off");
  EXPECT_EQ(serve.status, 1);
  EXPECT_THAT(serve.output, HasSubstr(plan.output));
  // A model's config beside them wins over the environment's checkpoint, and the command line over both.
  const Finished released =
      RunShell(environment + kMillrace + " plan" + kReleased + file + "--ram 512GiB --max-num-seqs 2");
  EXPECT_EQ(released.status, 0) << released.output;
  EXPECT_THAT(released.output, HasSubstr("--max-model-len 4096, --max-num-seqs 2"));
  EXPECT_THAT(released.output, HasSubstr("weights, routed experts        268.95 GiB"));
  const Finished empty = RunShell("MILLRACE_MAX_NUM_SEQS= " + kMillrace + " plan" + kReleased);
  EXPECT_EQ(empty.status, 2);
  const Finished misspelt = RunShell("MILLRACE_MAX_NUM_SEQ=3 " + kMillrace + " plan" + kReleased);
  EXPECT_THAT(misspelt.output, HasSubstr("MILLRACE_MAX_NUM_SEQ stands for no flag: did you mean"));
}

// What serve would not start with is refused by both, in the same words, and before serve maps a weight.
TEST(PlanCommand, RefusesTheCheckpointsThatServeRefuses) {
  const auto refusal = [](const std::string& spoil, const std::string& words) {
    const formats::ScratchDir dir;
    const std::string copy = (dir.path() / "mini").string();
    const Finished copied = RunShell("cp -r" + kMini + copy + " && cd " + copy + " && " + spoil);
    ASSERT_EQ(copied.status, 0) << copied.output;
    const Finished plan = RunShell(kMillrace + " plan " + copy);
    EXPECT_EQ(plan.status, 1) << spoil;
    EXPECT_THAT(plan.output, HasSubstr(words));
    EXPECT_THAT(plan.output, Not(HasSubstr("fits:"))) << spoil;
    const Finished serve = RunShell(kMillrace + " serve " + copy + " --port 0 --threads 1 --log-level info");
    EXPECT_EQ(serve.status, 1) << spoil;
    EXPECT_THAT(serve.output, HasSubstr(plan.output));
    EXPECT_THAT(serve.output, Not(HasSubstr("n-gram tables: "))) << spoil;
  };
  refusal("f=$(ls *.safetensors | tail -1) && truncate -s -1 $f", "bytes");
  refusal("rm tokenizer.json", "tokenizer.json");
  refusal("sed -i 's/\"vocab_size\": *[0-9]*/\"vocab_size\": 1275/' config.json", "vocab_size is 1275");
}

// Defaults alone must do, whatever the model's limits are.
TEST(PlanCommand, DefaultsFit) {
  const Finished plan = RunShell(kMillrace + " plan" + kMini);
  EXPECT_EQ(plan.status, 0) << plan.output;
}

TEST(ServeProgram, RefusesInTheSameWordsAsThePlan) {
  const std::string flags = "--ram 100MiB --max-model-len 4096 --threads 2";
  const Finished plan = RunShell(kMillrace + " plan" + kMini + flags);
  const Finished serve = RunShell(kMillrace + " serve" + kMini + flags + " --port 0 --log-level off");
  EXPECT_EQ(plan.status, 1);
  EXPECT_EQ(serve.status, 1);
  EXPECT_THAT(serve.output, HasSubstr(plan.output));
  EXPECT_THAT(serve.output, HasSubstr("does not fit: the plan needs"));
}

// The names of the plan are those of the accounts, and a server that has started holds what it printed.
TEST(ServeProgram, ShowsThePlanBesideWhatItHolds) {
  const std::string flags = "--max-model-len 2048 --threads 2";
  const json::value plan = json::parse(RunShell(kMillrace + " plan" + kMini + flags + " --json").output);
  const Finished health = RunShell("bash -c 'exec 3< <(exec " + kMillrace + " serve" + kMini + flags +
                                   " --port 0 --log-level off); server=$!; " +
                                   "while read -r line <&3; do case $line in *ready:*) break;; esac; done; " +
                                   "address=${line#*http://}; curl -s http://${address%% *}/health; "
                                   "status=$?; kill $server; exit $status'");
  ASSERT_EQ(health.status, 0) << health.output;
  const json::value memory = json::parse(health.output).at("memory");
  const json::object& accounts = memory.at("accounts").as_object();
  std::set<std::string> names;
  for (const json::value& line : plan.at("lines").as_array()) {
    const std::string name(line.at("name").as_string());
    names.insert(name);
    ASSERT_TRUE(accounts.contains(name)) << name;
    const auto planned = static_cast<double>(line.at("bytes").to_number<uint64_t>());
    const auto held = static_cast<double>(accounts.at(name).at("planned_bytes").to_number<uint64_t>());
    EXPECT_LE(held, planned) << name;
    EXPECT_GE(held, planned * 0.99) << name;
  }
  for (const auto& account : accounts) {
    // Of checkpoints whose shards are not laid out for float kernels.
    const bool foreseen = names.contains(std::string(account.key())) || account.key() == "weights realigned";
    EXPECT_TRUE(foreseen) << account.key();
  }
  const auto own = plan.at("own_bytes").to_number<uint64_t>();
  EXPECT_LE(memory.at("process_anonymous_bytes").to_number<uint64_t>(), own + own / 50);
}

// The default length of answers is larger than the small model's context.
TEST(ServeProgram, ADefaultAboveTheContextIsClampedWithOneNote) {
  const Finished log =
      RunShell("bash -c 'exec 3< <(exec " + kMillrace + " serve" + kMini +
               "--port 0 --threads 1 2>&1); server=$!; while read -r line <&3; do echo \"$line\"; "
               "case $line in *ready:*) break;; esac; done; kill $server'");
  EXPECT_EQ(log.status, 0);
  EXPECT_THAT(
      log.output,
      HasSubstr("--default-max-tokens 65536 is more than the context of 32768 tokens: answers end there"));
}

// Large bodies at once, of kinds that are expensive to decode: what the process holds stays within a plan
// that is not wide.
TEST(ServeProgram, StaysWithinItsPlanUnderLargeBodies) {
  const std::string flags =
      "--max-model-len 1024 --threads 1 --max-body-size 2MiB --max-bodies-size 4MiB --max-connections 8 "
      "--replay-size 1MiB --max-unread-total 1MiB --max-answers-size 1MiB --max-queue 8";
  const json::value plan = json::parse(RunShell(kMillrace + " plan" + kMini + flags + " --json").output);
  const auto own = plan.at("own_bytes").to_number<uint64_t>();
  const formats::ScratchDir dir;
  const std::string body = R"({"model":"mini","max_tokens":1,"messages":[{"role":"user","content":")";
  std::string letters;
  for (std::mt19937 random(1); letters.size() < 2'090'000;) letters += static_cast<char>('a' + random() % 26);
  dir.Write("letters", body + letters + R"("}]})");
  std::string values;
  while (values.size() < 2'090'000) values += "1,";
  dir.Write("values", body + R"(x"}],"metadata":[)" + values + "1]}");
  const std::string post =
      "curl -s -o /dev/null http://${address%% *}/v1/chat/completions -H Content-Type:application/json "
      "--data-binary @" +
      dir.path().string() + "/";
  const Finished peak =
      RunShell("bash -c 'exec 3< <(exec " + kMillrace + " serve" + kMini + flags +
               " --port 0 --log-level off); server=$!; " +
               "while read -r line <&3; do case $line in *ready:*) break;; esac; done; "
               "address=${line#*http://}; peak=0; " +
               "for kind in letters values letters; do for i in 1 2 3; do " + post + "$kind & done; " +
               "while [ $(jobs -r | grep -c curl) -gt 0 ]; do now=$(grep RssAnon /proc/$server/status | tr "
               "-dc 0-9); " +
               "[ $now -gt $peak ] && peak=$now; done; done; kill $server; echo $peak'");
  ASSERT_EQ(peak.status, 0) << peak.output;
  const uint64_t peak_bytes = std::stoull(peak.output) * kKiB;
  EXPECT_LE(peak_bytes, own + own / 50);
  EXPECT_GT(peak_bytes, own / 4);  // it was under load
}

}  // namespace
}  // namespace millrace::app
