#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

// Where the values of a command's flags come from when its command line does not give them: the environment,
// then a file.
namespace millrace::app {

// An environment, as tests may make one.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual std::optional<std::string> Get(const std::string& name) const = 0;
  // The names that begin with `prefix`.
  virtual std::vector<std::string> Names(const std::string& prefix) const = 0;
};
const Environment& ProcessEnvironment();

// "MILLRACE_MAX_NUM_SEQS": the variable that stands for an option.
std::string VariableOf(const CLI::Option& option);

// Flags of `command` that are not settings: they neither stand in files nor in the environment.
struct SettingsRules {
  std::vector<std::string> not_settings = {"help", "help-all"};
  std::vector<std::string> ignored = {};  // in files and the environment, whatever they say: passed over
  std::vector<std::string> secrets = {};  // not read from the environment here, and never printed
};

// The values of a command's options and where each came from.
class Settings {
 public:
  // After `command` was parsed; the command outlives the object.
  Settings(CLI::App& command, SettingsRules rules);

  // Give values to options that have none yet; call in the order of precedence. kInvalidArgument naming the
  // variable, or file and line, and for an unknown key the nearest.
  Status ApplyEnvironment(const Environment& environment);
  Status ApplyFile(const std::string& path);

  // Variables with our prefix that stand for nothing: a line each, naming the nearest.
  std::vector<std::string> UnknownVariables(const Environment& environment) const;

  // All settings in the format that ApplyFile reads, each with its origin; what has neither value nor default
  // is a comment. Secrets are counted, not shown.
  std::string Print() const;

 private:
  bool IsSetting(const CLI::Option& option) const;
  bool IsIgnored(const CLI::Option& option) const;
  bool IsSecret(const CLI::Option& option) const;
  CLI::Option* Find(const std::string& key) const;
  Status Give(CLI::Option& option, const std::vector<std::string>& values, const std::string& origin);

  CLI::App& command_;
  const SettingsRules rules_;
  std::map<const CLI::Option*, std::string> origins_;
};

}  // namespace millrace::app
