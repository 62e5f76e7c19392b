#include "real_layer/engram_hash64.h"

#include <array>
#include <set>
#include <utility>

namespace millrace::real_layer {
namespace {

__extension__ using Uint128 = unsigned __int128;

bool IsPrime(uint64_t n) {
  if (n < 2) return false;
  for (uint64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return true;
}

// PCG64 as NumPy's default_rng seeds it, for seeds below 2^64.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const std::array<uint64_t, 4> w = ExpandSeed(seed);
    increment_ = Join(w[2], w[3]) << 1 | 1;
    Step();
    state_ += Join(w[0], w[1]);
    Step();
  }

  uint64_t Below(uint64_t bound) {
    Uint128 product = Uint128{Next()} * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = (0 - bound) % bound;
      while (static_cast<uint64_t>(product) < threshold) product = Uint128{Next()} * bound;
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  static Uint128 Join(uint64_t high, uint64_t low) { return Uint128{high} << 64 | low; }

  static std::array<uint64_t, 4> ExpandSeed(uint64_t seed) {
    uint32_t running = 0x43b0d7e5;
    const auto hash = [&](uint32_t v) {
      v ^= running;
      running *= 0x931e8875;
      v *= running;
      return v ^ v >> 16;
    };
    std::array<uint32_t, 4> pool = {hash(static_cast<uint32_t>(seed)),
                                    hash(static_cast<uint32_t>(seed >> 32)), hash(0), hash(0)};
    for (size_t from = 0; from < 4; ++from) {
      for (size_t to = 0; to < 4; ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * hash(pool[from]);
        pool[to] = mixed ^ mixed >> 16;
      }
    }
    uint32_t output = 0x8b51f9dd;
    std::array<uint64_t, 4> words{};
    for (size_t i = 0; i < 8; ++i) {
      uint32_t v = pool[i % 4] ^ output;
      output *= 0x58f38ded;
      v *= output;
      v ^= v >> 16;
      words[i / 2] |= uint64_t{v} << (i % 2 * 32);
    }
    return words;
  }

  void Step() { state_ = state_ * Join(0x2360ed051fc65da4, 0x4385df649fccf645) + increment_; }

  uint64_t Next() {
    Step();
    const auto high = static_cast<uint64_t>(state_ >> 64);
    const uint64_t mixed = high ^ static_cast<uint64_t>(state_);
    const unsigned turn = static_cast<unsigned>(high >> 58);
    return turn == 0 ? mixed : mixed >> turn | mixed << (64 - turn);
  }

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
};

}  // namespace

EngramHash64::EngramHash64(const formats::ModelConfig& config, std::vector<int32_t> class_of)
    : class_of_(std::move(class_of)),
      max_ngram_(static_cast<size_t>(config.engram_max_ngram_size)),
      heads_(static_cast<size_t>(config.engram_n_heads)),
      pad_class_(static_cast<uint64_t>(class_of_[static_cast<size_t>(config.engram_pad_token_id)])) {
  const auto classes = static_cast<uint64_t>(config.engram_compressed_vocab_size);
  std::set<uint64_t> used;
  for (const int64_t id : config.engram_layer_ids) {
    Layer layer;
    for (size_t size = 2; size <= max_ngram_; ++size) {
      auto candidate = static_cast<uint64_t>(config.engram_vocab_size) - 1;
      for (size_t head = 0; head < heads_; ++head) {
        do {
          ++candidate;
        } while (!IsPrime(candidate) || used.contains(candidate));
        used.insert(candidate);
        layer.primes.push_back(candidate);
      }
    }
    Pcg64 random(10007 * static_cast<uint64_t>(id));
    const uint64_t bound = ((uint64_t{1} << 63) - 1) / classes / 2;
    for (size_t i = 0; i < max_ngram_; ++i) layer.multipliers.push_back(2 * random.Below(bound) + 1);
    layers_.push_back(std::move(layer));
  }
}

std::vector<int64_t> EngramHash64::Rows(size_t layer, std::span<const TokenId> ids) const {
  const Layer& l = layers_[layer];
  const auto class_at = [&](size_t back) {
    return back < ids.size()
               ? static_cast<uint64_t>(class_of_[static_cast<size_t>(ids[ids.size() - 1 - back])])
               : pad_class_;
  };
  std::vector<int64_t> rows;
  uint64_t offset = 0;
  uint64_t x = class_at(0) * l.multipliers[0];
  for (size_t back = 1; back < max_ngram_; ++back) {
    x ^= class_at(back) * l.multipliers[back];
    for (size_t head = 0; head < heads_; ++head) {
      const uint64_t prime = l.primes[rows.size()];
      rows.push_back(static_cast<int64_t>(offset + x % prime));
      offset += prime;
    }
  }
  return rows;
}

}  // namespace millrace::real_layer
