#include "app/settings.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "app/config_text.h"
#include "app/flag_names.h"
#include "formats/text_file.h"

namespace millrace::app {
namespace {

constexpr const char* kPrefix = "MILLRACE_";
constexpr size_t kMaxConfigBytes = 1 << 20;

class RealEnvironment final : public Environment {
 public:
  std::optional<std::string> Get(const std::string& name) const override {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  std::vector<std::string> Names(const std::string& prefix) const override {
    std::vector<std::string> names;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text(*variable);
      if (text.starts_with(prefix)) names.emplace_back(text.substr(0, text.find('=')));
    }
    return names;
  }
};

bool IsList(const CLI::Option& option) {
  return option.get_items_expected_max() > 1;
}

// Of a variable: a list's values stand between commas.
std::vector<std::string> SplitValue(const CLI::Option& option, const std::string& value) {
  if (!IsList(option)) return {value};
  std::vector<std::string> parts;
  for (const std::string& part : CLI::detail::split(value, ','))
    if (!part.empty()) parts.push_back(part);
  return parts;
}

const std::string& NameOf(const CLI::Option& option) {
  return option.get_lnames().front();
}

}  // namespace

const Environment& ProcessEnvironment() {
  static const RealEnvironment environment;
  return environment;
}

std::string VariableOf(const CLI::Option& option) {
  std::string name = NameOf(option);
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return kPrefix + name;
}

Settings::Settings(CLI::App& command, SettingsRules rules) : command_(command), rules_(std::move(rules)) {
  for (const CLI::Option* option : command_.get_options())
    if (option->count() > 0) origins_[option] = "command line";
}

bool Settings::IsSetting(const CLI::Option& option) const {
  return !option.get_lnames().empty() &&
         std::ranges::find(rules_.not_settings, NameOf(option)) == rules_.not_settings.end();
}

bool Settings::IsIgnored(const CLI::Option& option) const {
  return std::ranges::find(rules_.ignored, NameOf(option)) != rules_.ignored.end();
}

bool Settings::IsSecret(const CLI::Option& option) const {
  return std::ranges::find(rules_.secrets, NameOf(option)) != rules_.secrets.end();
}

CLI::Option* Settings::Find(const std::string& key) const {
  std::string name = key;
  std::ranges::replace(name, '_', '-');
  CLI::Option* const option = command_.get_option_no_throw("--" + name);
  return option != nullptr && IsSetting(*option) ? option : nullptr;
}

Status Settings::Give(CLI::Option& option, const std::vector<std::string>& values,
                      const std::string& origin) {
  try {
    option.add_result(values);
    option.run_callback();
  } catch (const CLI::Error& error) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", origin, error.what()));
  }
  origins_[&option] = origin;
  return {};
}

Status Settings::ApplyEnvironment(const Environment& environment) {
  for (CLI::Option* option : command_.get_options({})) {
    if (!IsSetting(*option) || IsIgnored(*option) || IsSecret(*option) || option->count() > 0) continue;
    const std::string variable = VariableOf(*option);
    const std::optional<std::string> value = environment.Get(variable);
    if (!value) continue;
    if (value->empty()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{} is set but empty; unset it or give it a value", variable));
    }
    MILLRACE_RETURN_IF_ERROR(Give(*option, SplitValue(*option, *value), variable));
  }
  return {};
}

Status Settings::ApplyFile(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, formats::ReadTextFile(path, kMaxConfigBytes));
  if (const size_t first = text.find_first_not_of(" \t\r\n");
      first != std::string::npos && text[first] == '{') {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is JSON, as the config.json of a model is; a file of settings has "
                    "'flag: value' lines. The model is given by its directory, as in 'millrace serve "
                    "DIRECTORY'",
                    path));
  }
  const Result<std::vector<ConfigEntry>> entries = ParseConfig(text);
  if (!entries.ok())
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, entries.error().message()));
  std::map<const CLI::Option*, std::string> given;  // by this file, under which name
  for (const ConfigEntry& entry : *entries) {
    const std::string place = fmt::format("{}: line {}", path, entry.line);
    CLI::Option* const option = Find(entry.key);
    if (option == nullptr) {
      std::vector<std::string> names;
      for (const CLI::Option* known : command_.get_options())
        if (IsSetting(*known))
          names.insert(names.end(), known->get_lnames().begin(), known->get_lnames().end());
      const std::string nearest = NearestName(entry.key, names);
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: unknown key '{}'{}", place, entry.key,
                               nearest.empty() ? "" : fmt::format(": did you mean {}?", nearest)));
    }
    if (const auto [before, is_new] = given.emplace(option, entry.key); !is_new) {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: '{}' and '{}' are the same setting; give one", place, before->second, entry.key));
    }
    if (option->count() > 0 || IsIgnored(*option)) continue;
    if (entry.values.size() > 1 && !IsList(*option)) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: '{}' takes one value, not a list", place, entry.key));
    }
    MILLRACE_RETURN_IF_ERROR(Give(*option, entry.values, place));
  }
  return {};
}

std::vector<std::string> Settings::UnknownVariables(const Environment& environment) const {
  std::vector<std::string> known;
  for (const CLI::Option* option : command_.get_options())
    if (IsSetting(*option)) known.push_back(VariableOf(*option));
  std::vector<std::string> lines;
  for (const std::string& name : environment.Names(kPrefix)) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string nearest = NearestName(name, known);
    lines.push_back(fmt::format("the environment variable {} stands for no flag{}", name,
                                nearest.empty() ? "" : fmt::format(": did you mean {}?", nearest)));
  }
  return lines;
}

std::string Settings::Print() const {
  std::string text =
      "# Effective configuration; the command line wins over the environment, that over the file.\n";
  for (const CLI::Option* option : command_.get_options()) {
    if (!IsSetting(*option)) continue;
    const std::string& name = NameOf(*option);
    const auto origin = origins_.find(option);
    if (IsSecret(*option)) {
      text += fmt::format("# {}: {}\n", name,
                          option->count() > 0 ? fmt::format("{} given, not shown", option->count())
                                              : "not set by flag or file");
    } else if (origin != origins_.end()) {
      text += fmt::format("{}  # {}\n", FormatConfigEntry(name, option->results(), IsList(*option)),
                          origin->second);
    } else if (!option->get_default_str().empty()) {
      text += FormatConfigEntry(name, {option->get_default_str()}, IsList(*option)) + '\n';
    } else {
      text += fmt::format("# {}: not set\n", name);
    }
  }
  return text;
}

}  // namespace millrace::app
