#include "api/random_id.h"

#include <fmt/format.h>

#include <random>

namespace millrace::api {
namespace {

std::mt19937_64 SeededGenerator() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device(), device(), device()};
  return std::mt19937_64(seed);
}

}  // namespace

uint64_t RandomNumber() {
  thread_local std::mt19937_64 generator = SeededGenerator();
  return generator();
}

std::string RandomHexId() {
  return fmt::format("{:016x}{:016x}", RandomNumber(), RandomNumber());
}

}  // namespace millrace::api
