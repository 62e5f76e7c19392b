#include "app/flag_names.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace millrace::app {
namespace {

// Single dashes in front of several letters, which the parser would take for several flags.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOtherSpellings = {
    {{"-np", "--parallel"}, {"-ub", "--ubatch-size"}, {"-tp", "--tensor-parallel-size"}}};

// Insertions, deletions, substitutions, and swaps of neighbours.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::exchange(last, row);
  }
  return last[b.size()];
}

std::string_view NameOf(std::string_view flag) {
  return flag.substr(0, flag.find('='));
}

}  // namespace

std::string NearestName(std::string_view typed, std::span<const std::string> names) {
  constexpr size_t kLettersForEachError = 3;
  size_t best = std::max<size_t>(1, typed.size() / kLettersForEachError) + 1;
  std::string nearest;
  for (const std::string& name : names) {
    const size_t distance = EditDistance(typed, name);
    if (distance >= best) continue;
    best = distance;
    nearest = name;
  }
  return nearest;
}

std::vector<std::string> LongFlags(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

void NormalizeFlags(std::vector<std::string>& args) {
  for (std::string& arg : args) {
    if (arg == "--") return;
    for (const auto& [typed, ours] : kOtherSpellings)
      if (arg == typed) arg = ours;
    if (!arg.starts_with("--")) continue;
    const auto end = arg.begin() + static_cast<std::ptrdiff_t>(NameOf(arg).size());
    std::replace(arg.begin(), end, '_', '-');
  }
}

std::string CommandPath(const CLI::App& command) {
  std::string path = command.get_name();
  for (const CLI::App* above = command.get_parent(); above != nullptr; above = above->get_parent())
    path = above->get_name() + " " + path;
  return path;
}

std::string UnknownFlagMessage(const CLI::App& command, std::string_view typed) {
  const std::string_view name = NameOf(typed);
  const std::string nearest = NearestName(name, LongFlags(command));
  return fmt::format("unknown flag '{}'{} '{} --help' lists all", name,
                     nearest.empty() ? ";" : fmt::format(": did you mean {}?", nearest),
                     CommandPath(command));
}

std::string InTypedWords(const CLI::App& command, std::span<const std::string> args, std::string message) {
  const size_t end = message.find(": ");
  const CLI::Option* const option =
      end == std::string::npos ? nullptr : command.get_option_no_throw(message.substr(0, end));
  if (option == nullptr) return message;
  for (const std::string& arg : args) {
    const std::string typed(NameOf(arg));
    if (typed.starts_with('-') && option->check_name(typed)) return typed + message.substr(end);
  }
  return message;
}

}  // namespace millrace::app
