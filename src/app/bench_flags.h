#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace millrace::app {

// What all subcommands of `bench` that measure speed take.
struct BenchFlags {
  int threads = 0;              // 0: one a processor
  std::string instruction_set;  // empty: the best
  bool json = false;
};

// `flags` live as long as `command`.
void AddBenchFlags(CLI::App& command, BenchFlags& flags);

// Threads to measure with, after the flags have taken effect.
int ApplyBenchFlags(const BenchFlags& flags);

}  // namespace millrace::app
