#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "app/commands.h"

// `millrace inspect` and `millrace make-checkpoint` as a user calls them.

namespace millrace::app {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

Outcome Millrace(std::vector<std::string> arguments) {
  CLI::App root("test", "millrace");
  root.require_subcommand(1);
  Invocation invocation;
  AddInspectCommand(root, invocation);
  AddMakeCheckpointCommand(root, invocation);
  std::reverse(arguments.begin(), arguments.end());
  Outcome outcome;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  try {
    root.parse(arguments);
    outcome.status = invocation.run();
  } catch (const CLI::ParseError& error) {
    outcome.status = root.exit(error) == 0 ? 0 : 2;
  }
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

const std::string kReleasedConfig = std::string(MILLRACE_SOURCE_DIR) + "/tests/data/v41-config.json";

class InspectCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "millrace_inspect_XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    dir_ = path;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string MakeTiny() {
    const std::string tiny = (dir_ / "tiny").string();
    const Outcome made = Millrace({"make-checkpoint", "--preset", "tiny", "--seed", "7", tiny});
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_THAT(made.out, AllOf(HasSubstr("preset  tiny, seed 7"), HasSubstr("tensors  1,088"),
                                HasSubstr("config.json ... model.safetensors.index.json")));
    return tiny;
  }

  fs::path dir_;
};

TEST_F(InspectCommand, ReleasedConfigAloneGivesThePublishedFigures) {
  const Outcome outcome = Millrace({"inspect", "--config", kReleasedConfig});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* figure : {
           "tensors  96,085\n",
           "bytes  510,286,023,000 (475.24 GiB)\n",
           "288,777,830,400   268.945",
           "271,790,899,200   253.125",
           "16,986,931,200    15.820",
           "6,884,040,128     6.411",
           "5,069,721,600     4.722",
           "1,416,960,000     1.320",
           "157,409,280     0.147",
           "157,295,040     0.146",
           "45,130,752     0.042",
           "36,704,256     0.034",
           "2,647,664,640     2.466",
           "202,758,032,400   188.833",
           "315,043,840     0.293",
           "7,219,445,760     6.724",
           "713,428,872     0.664",
           "970,536,960     0.904",
       })
    EXPECT_THAT(outcome.out, HasSubstr(figure));
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("\nBF16 +520 "));
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("\nF32 +387 "));
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("\nF8_E4M3 +357 "));
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("\nI8 +47,232 "));
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("\nF8_E8M0 +47,589 "));
  EXPECT_THAT(outcome.out, Not(HasSubstr("disagreements")));
}

TEST_F(InspectCommand, ConfigAsJson) {
  const Outcome outcome = Millrace({"inspect", "--json", "--config", kReleasedConfig});
  EXPECT_EQ(outcome.status, 0);
  const boost::json::object report = boost::json::parse(outcome.out).as_object();
  EXPECT_EQ(report.at("tensors").as_int64(), 96'085);
  EXPECT_EQ(report.at("bytes").as_int64(), 510'286'023'000);
  EXPECT_EQ(report.at("categories").as_array().size(), 15u);
  EXPECT_FALSE(report.contains("disagreements"));
}

TEST_F(InspectCommand, GoodCheckpointExitsWithZero) {
  const Outcome outcome = Millrace({"inspect", "--all-scales", MakeTiny()});
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("the text model can be served"), HasSubstr("drafting can be used"),
                                 HasSubstr("images can be read"), HasSubstr("nothing disagrees")));
}

TEST_F(InspectCommand, GapInTheDraftExitsWithOneAndSaysWhatStillWorks) {
  const std::string tiny = MakeTiny();
  fs::remove(fs::path(tiny) / "model-00013-of-00016.safetensors");
  const Outcome text = Millrace({"inspect", tiny});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, AllOf(HasSubstr("drafting is refused; the text model can be served"),
                              HasSubstr("draft: model-00013-of-00016.safetensors: found no such file")));
  const Outcome as_json = Millrace({"inspect", "--json", tiny});
  EXPECT_EQ(as_json.status, 1);
  const boost::json::object report = boost::json::parse(as_json.out).as_object();
  const auto& disagreements = report.at("disagreements").as_array();
  ASSERT_EQ(disagreements.size(), 1u);
  EXPECT_EQ(disagreements[0].at("component").as_string(), "draft");
  EXPECT_EQ(disagreements[0].at("file").as_string(), "model-00013-of-00016.safetensors");
  EXPECT_EQ(report.at("components").as_array()[1].at("state").as_string(), "incomplete");
}

TEST_F(InspectCommand, DamageToTheTextModelIsCalledARefusal) {
  const std::string tiny = MakeTiny();
  const fs::path shard = fs::path(tiny) / "model-00003-of-00016.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  const Outcome outcome = Millrace({"inspect", tiny});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("the checkpoint is refused"), HasSubstr(shard.filename().string()),
                                 HasSubstr("but of no use without the text model")));
}

TEST_F(InspectCommand, UnreadableInputExitsWithOneAndASentence) {
  const Outcome outcome = Millrace({"inspect", "/nonexistent"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("millrace: /nonexistent does not exist"));
}

TEST_F(InspectCommand, WrongUsageExitsWithTwo) {
  EXPECT_EQ(Millrace({"inspect"}).status, 2);
  EXPECT_EQ(Millrace({"inspect", "--config", kReleasedConfig, "dir"}).status, 2);
  EXPECT_EQ(Millrace({"make-checkpoint", "--preset", "tiny"}).status, 2);
  const Outcome unknown = Millrace({"make-checkpoint", "--preset", "huge", (dir_ / "x").string()});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("huge"), HasSubstr("real-layer")));
}

TEST_F(InspectCommand, MakeCheckpointKeepsWhatIsThereUnlessForced) {
  const std::string tiny = MakeTiny();
  const Outcome again = Millrace({"make-checkpoint", "--preset", "tiny", tiny});
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.err, AllOf(HasSubstr(tiny), HasSubstr("is not empty"), HasSubstr("--force")));
  EXPECT_EQ(Millrace({"make-checkpoint", "--preset", "tiny", "--force", tiny}).status, 0);
}

}  // namespace
}  // namespace millrace::app
