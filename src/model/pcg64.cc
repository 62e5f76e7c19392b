#include "model/pcg64.h"

#include <bit>
#include <cstddef>

namespace millrace::model {
namespace {

using std::size_t;

// SeedSequence's entropy pool; 32-bit arithmetic throughout.
std::array<uint64_t, 4> ExpandSeed(uint64_t seed) {
  const std::array<uint32_t, 4> words = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0,
                                         0};
  uint32_t hash_multiplier = 0x43b0d7e5u;
  const auto hash = [&](uint32_t v) {
    v ^= hash_multiplier;
    hash_multiplier *= 0x931e8875u;
    v *= hash_multiplier;
    return v ^ v >> 16;
  };
  const auto mix = [](uint32_t a, uint32_t b) {
    const uint32_t x = 0xca01f9ddu * a - 0x4973f715u * b;
    return x ^ x >> 16;
  };
  std::array<uint32_t, 4> pool;
  for (size_t i = 0; i < 4; ++i) pool[i] = hash(words[i]);
  for (size_t source = 0; source < 4; ++source) {
    for (size_t target = 0; target < 4; ++target) {
      if (source != target) pool[target] = mix(pool[target], hash(pool[source]));
    }
  }
  uint32_t output_multiplier = 0x8b51f9ddu;
  std::array<uint64_t, 4> expanded{};
  for (size_t i = 0; i < 8; ++i) {
    uint32_t v = pool[i % 4] ^ output_multiplier;
    output_multiplier *= 0x58f38dedu;
    v *= output_multiplier;
    v ^= v >> 16;
    expanded[i / 2] |= uint64_t{v} << (i % 2 * 32);
  }
  return expanded;
}

}  // namespace

Pcg64::Pcg64(uint64_t seed) {
  const std::array<uint64_t, 4> w = ExpandSeed(seed);
  increment_ = (Word128{w[2]} << 64 | w[3]) << 1 | 1;
  Step();
  state_ += Word128{w[0]} << 64 | w[1];
  Step();
}

void Pcg64::Step() {
  constexpr Word128 kMultiplier = Word128{0x2360ed051fc65da4u} << 64 | 0x4385df649fccf645u;
  state_ = state_ * kMultiplier + increment_;
}

uint64_t Pcg64::Next() {
  Step();
  const auto high = static_cast<uint64_t>(state_ >> 64);
  const auto low = static_cast<uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

uint64_t Pcg64::Below(uint64_t bound) {
  Word128 product = Word128{Next()} * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t rejected = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < rejected) product = Word128{Next()} * bound;
  }
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace millrace::model
