#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

// The names of flags as people type them.
namespace millrace::app {

// The one of `names` that `typed` is most likely meant to be, by edit distance; empty when none is near.
std::string NearestName(std::string_view typed, std::span<const std::string> names);

// Every long name that `command` takes, with its dashes.
std::vector<std::string> LongFlags(const CLI::App& command);

// Rewrites other spellings of flag names to ours: "--max_num_seqs" to "--max-num-seqs", llama.cpp's "-np" to
// "--parallel". What follows "--", and values, stay as they are.
void NormalizeFlags(std::vector<std::string>& args);

// "unknown flag '--prot'; did you mean --port? 'millrace serve --help' lists all"
std::string UnknownFlagMessage(const CLI::App& command, std::string_view typed);

// "millrace bench serve".
std::string CommandPath(const CLI::App& command);

// The parser's message about one option, "--tensor-parallel-size: ...", with the option's name as it stands
// in `args`, "--tp: ..."; other messages as they are.
std::string InTypedWords(const CLI::App& command, std::span<const std::string> args, std::string message);

}  // namespace millrace::app
