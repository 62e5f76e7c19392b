#include "app/completion_script.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <string_view>
#include <vector>

namespace millrace::app {
namespace {

// A word that may be typed at one place.
struct Word {
  std::string text;
  std::string description;
  bool takes_value = false;
};

// A command and what may follow it.
struct Place {
  std::vector<std::string> path;  // of subcommands, empty for the program itself
  std::vector<Word> subcommands;
  std::vector<Word> flags;
};

// For scripts: one line, without what quoting would have to care for.
std::string Plain(std::string_view description) {
  std::string text;
  for (const char c : description.substr(0, description.find_first_of(";\n")))
    if (c != '\'' && c != '"' && c != '`' && c != '$' && c != '\\') text += c == ':' ? ',' : c;
  return text;
}

void Collect(const CLI::App& command, std::vector<std::string> path, std::vector<Place>& places) {
  Place place{path, {}, {}};
  for (const CLI::Option* option : command.get_options()) {
    const bool takes_value = option->get_items_expected_max() > 0;
    for (const std::string& name : option->get_lnames())
      place.flags.push_back({"--" + name, Plain(option->get_description()), takes_value});
  }
  const auto subcommands = command.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* subcommand : subcommands)
    place.subcommands.push_back({subcommand->get_name(), Plain(subcommand->get_description()), false});
  places.push_back(std::move(place));
  for (const CLI::App* subcommand : subcommands) {
    std::vector<std::string> below = path;
    below.push_back(subcommand->get_name());
    Collect(*subcommand, std::move(below), places);
  }
}

std::string Joined(const Place& place) {
  return fmt::format("/{}", fmt::join(place.path, "/"));
}

// The line of a shell's case statement that walks from word to word: all paths but the program's.
std::string Paths(const std::vector<Place>& places) {
  std::vector<std::string> paths;
  for (const Place& place : places)
    if (!place.path.empty()) paths.push_back(Joined(place));
  return fmt::format("{}", fmt::join(paths, "|"));
}

std::string BashScript(const std::vector<Place>& places) {
  std::string cases;
  for (const Place& place : places) {
    std::vector<std::string> words;
    for (const auto* list : {&place.subcommands, &place.flags})
      for (const Word& word : *list) words.push_back(word.text);
    cases += fmt::format("    {}) words='{}' ;;\n", place.path.empty() ? "''" : Joined(place),
                         fmt::join(words, " "));
  }
  return fmt::format(R"sh(# millrace: completion for bash. Put this line into ~/.bashrc:
#   source <(millrace completion bash)
_millrace() {{
  local place='' word words=''
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$place/$word" in
      {}) place="$place/$word" ;;
    esac
  done
  case "$place" in
{}  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}")
}}
complete -o default -F _millrace millrace
)sh",
                     Paths(places), cases);
}

std::string ZshScript(const std::vector<Place>& places) {
  std::string cases;
  for (const Place& place : places) {
    cases += fmt::format("    {}) words=(\n", place.path.empty() ? "''" : Joined(place));
    for (const auto* list : {&place.subcommands, &place.flags})
      for (const Word& word : *list) cases += fmt::format("      '{}:{}'\n", word.text, word.description);
    cases += "    ) ;;\n";
  }
  return fmt::format(R"sh(#compdef millrace
# millrace: completion for zsh. Write it to a file named _millrace in a directory of $fpath:
#   millrace completion zsh > ~/.zsh/completions/_millrace
_millrace() {{
  local place='' word
  local -a typed words
  typed=("${{(@)words[2,CURRENT-1]}}")
  words=()
  for word in $typed; do
    case "$place/$word" in
      {}) place="$place/$word" ;;
    esac
  done
  case "$place" in
{}  esac
  _describe -o millrace words
  _files
}}
_millrace "$@"
)sh",
                     Paths(places), cases);
}

std::string FishScript(const std::vector<Place>& places) {
  std::string script =
      "# millrace: completion for fish.\n"
      "#   millrace completion fish > ~/.config/fish/completions/millrace.fish\n";
  for (const Place& place : places) {
    std::string condition;
    for (const std::string& name : place.path)
      condition += fmt::format("{}__fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ", name);
    if (!place.subcommands.empty()) {
      std::vector<std::string> names;
      for (const Word& word : place.subcommands) names.push_back(word.text);
      condition += fmt::format("{}not __fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ",
                               fmt::join(names, " "));
    }
    for (const Word& word : place.subcommands)
      script +=
          fmt::format("complete -c millrace -n '{}' -a {} -d '{}'\n", condition, word.text, word.description);
    for (const Word& word : place.flags)
      script += fmt::format("complete -c millrace -n '{}' -l {}{} -d '{}'\n", condition, word.text.substr(2),
                            word.takes_value ? " -r" : "", word.description);
  }
  return script;
}

}  // namespace

Result<std::string> CompletionScript(const CLI::App& root, const std::string& shell) {
  std::vector<Place> places;
  Collect(root, {}, places);
  if (shell == "bash") return BashScript(places);
  if (shell == "zsh") return ZshScript(places);
  if (shell == "fish") return FishScript(places);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("no completion for the shell '{}'; there is one for bash, zsh and fish", shell));
}

}  // namespace millrace::app
