#include "model/synthetic_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "base/codecs.h"

namespace millrace::model {
namespace {

constexpr size_t kDraws = size_t{1} << 16;

// xoshiro256**, seeded from one word.
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9E3779B97F4A7C15u;
      word = Mix(seed);
    }
  }

  // A bijection that leaves no pattern of its input (the finaliser of SplitMix64).
  static uint64_t Mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
  }

  uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

 private:
  uint64_t state_[4];
};

// FNV-1a: names are short and fixed, only their difference matters.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

// Calls fn(i, sixteen random bits) for i in [0, n).
template <typename Fn>
void ForEachDraw(RandomStream& random, size_t n, Fn fn) {
  for (size_t i = 0; i < n; i += 4) {
    uint64_t word = random.Next();
    const size_t end = std::min(n, i + 4);
    for (size_t k = i; k < end; ++k, word >>= 16) fn(k, static_cast<uint32_t>(word & 0xFFFF));
  }
}

// exp(-t) for t in [0, 16] to twelve digits: the library's exp may differ between machines in the last bit.
double ExpOfMinus(double t) {
  constexpr int kHalvings = 10;
  const double u = t / (1 << kHalvings);
  double e = 1 - u * (1 - u / 2 * (1 - u / 3 * (1 - u / 4)));
  for (int i = 0; i < kHalvings; ++i) e *= e;
  return e;
}

// The middles of 2^16 equally likely slices of N(0, 1), ascending: the density is summed from 0 outward.
std::vector<float> NormalQuantiles() {
  constexpr double kStep = 0x1p-13;
  constexpr double kDensityAtZero = 0.39894228040143268;
  std::vector<float> quantiles(kDraws);
  double x = 0, below = 0.5, slice = 0;
  for (size_t i = kDraws / 2; i < kDraws; ++i) {
    const double wanted = (static_cast<double>(i) + 0.5) / kDraws;
    while (below + slice < wanted) {
      below += slice;
      const double middle = x + kStep / 2;
      slice = kStep * kDensityAtZero * ExpOfMinus(middle * middle / 2);
      x += kStep;
    }
    const double value = x - kStep + kStep * (wanted - below) / slice;
    quantiles[i] = static_cast<float>(value);
    quantiles[kDraws - 1 - i] = static_cast<float>(-value);
  }
  return quantiles;
}

// Standard deviations of the codes before rounding. Trained weights are scaled so that the largest of a block
// comes near the largest code: 448 and 6.
constexpr float kFp8Spread = 112.0f;
constexpr float kFp4Spread = 2.0f;
constexpr size_t kFp8SpecialEvery = 256;

std::vector<uint8_t> Fp8Codes(const std::vector<float>& normal) {
  std::vector<uint8_t> codes(kDraws);
  for (size_t i = 0; i < kDraws; ++i) codes[i] = FloatToE4m3(normal[i] * kFp8Spread);
  // 0 and the seven subnormals of either sign hardly occur in a wide distribution: give each one a share.
  for (size_t i = 0; i < kDraws; i += kFp8SpecialEvery) {
    const auto special = static_cast<uint8_t>(i / kFp8SpecialEvery % 16);
    codes[i] = static_cast<uint8_t>((special & 7) | (special >> 3 << 7));
  }
  return codes;
}

std::vector<uint8_t> Fp4Pairs(const std::vector<float>& normal) {
  std::vector<uint8_t> pairs(kDraws);
  const auto code = [&](size_t slice) { return FloatToE2m1(normal[slice * 256 + 128] * kFp4Spread); };
  for (size_t i = 0; i < kDraws; ++i) pairs[i] = static_cast<uint8_t>(code(i & 255) | code(i >> 8) << 4);
  return pairs;
}

template <typename Decode>
double Rms(const std::vector<uint8_t>& codes, Decode decode) {
  double sum = 0;
  for (const uint8_t code : codes)
    sum += static_cast<double>(decode(code)) * static_cast<double>(decode(code));
  return std::sqrt(sum / static_cast<double>(codes.size()));
}

struct Normal {
  float mean;
  float deviation;
};

// What the values of a tensor are drawn from; of a scale tensor, what its matrix's values should be.
Normal DistributionOf(const TensorSpec& spec) {
  using K = TensorKind;
  switch (spec.kind) {
    case K::kNorm:
    case K::kAttnNorm:
    case K::kFfnNorm:
    case K::kQNorm:
    case K::kKvNorm:
    case K::kCompressorNorm:
    case K::kIndexerKNorm:
    case K::kDraftMainNorm:
    case K::kDraftNorm:
    case K::kVisionNorm:
    case K::kVisionNorm1:
    case K::kVisionNorm2:
      return {1, 0.1f};
    case K::kEngramQWeight:
    case K::kEngramKWeight:
      return {1, 0.3f};
    case K::kHcAttnBase:
    case K::kHcFfnBase:
      return {0, 0.6f};
    case K::kHcAttnScale:
    case K::kHcFfnScale:
      return {1, 0.2f};
    case K::kGateBias:
    case K::kGateBiasVl:
      return {0, 0.1f};
    case K::kAttnSink:
    case K::kEmbed:
    case K::kDraftMarkovEmbed:
    case K::kImageStart:
    case K::kImageEnd:
    case K::kImageNewline:
      return {0, 1};
    case K::kEngramEmbed:
      return {0, 0.5f};
    case K::kVisionPatchProjBias:
    case K::kVisionWqkvBias:
    case K::kVisionWoBias:
    case K::kAlignerW1Bias:
    case K::kAlignerW2Bias:
      return {0, 0.1f};
    default:
      break;
  }
  // A matrix whose outputs are about as large as its inputs; the head's are twice that, to tell tokens apart.
  constexpr int64_t kScaleBlock = 32;
  const int64_t inputs = spec.shape[1] * (spec.is_scale ? kScaleBlock : 1);
  const float gain = spec.kind == K::kHead ? 2.0f : 1.0f;
  return {0, gain / std::sqrt(static_cast<float>(inputs))};
}

// Scale exponents vary by block over three powers of two, so that a scale taken from the wrong block shows,
// and half a step more is dithered in, so that the matrix as a whole has the wanted deviation.
void FillScales(double deviation, double code_rms, RandomStream& random, std::span<std::byte> out) {
  constexpr double kMeanSquareOfVariation = (0.25 + 1 + 4) / 3;
  constexpr int kBias = 127;
  const double wanted = deviation * deviation / (code_rms * code_rms * kMeanSquareOfVariation);
  int exponent = 0;  // 4^exponent <= wanted < 4^(exponent + 1)
  while (std::ldexp(1.0, 2 * exponent) > wanted) --exponent;
  while (std::ldexp(1.0, 2 * exponent + 2) <= wanted) ++exponent;
  const double share = (wanted / std::ldexp(1.0, 2 * exponent) - 1) / 3;
  const auto threshold = static_cast<uint32_t>(share * (kDraws / 3));
  ForEachDraw(random, out.size(), [&](size_t i, uint32_t draw) {
    const int variation = static_cast<int>(draw % 3) - 1;
    out[i] = static_cast<std::byte>(kBias + exponent + variation + (draw / 3 < threshold ? 1 : 0));
  });
}

}  // namespace

WeightSource::WeightSource(uint64_t seed)
    : normal_(NormalQuantiles()),
      fp8_(Fp8Codes(normal_)),
      fp4_pair_(Fp4Pairs(normal_)),
      fp8_rms_(Rms(fp8_, E4m3ToFloat)),
      fp4_rms_(Rms(fp4_pair_, [](uint8_t pair) { return E2m1ToFloat(pair & 15); })),
      seed_(RandomStream::Mix(seed)) {}

uint64_t WeightSource::BlockCount(const TensorSpec& spec) {
  const uint64_t elements = spec.bytes() / formats::DTypeBytes(spec.dtype);
  return (elements + kBlockElements - 1) / kBlockElements;
}

uint64_t WeightSource::BlockBytes(const TensorSpec& spec, uint64_t block) {
  const uint64_t full = kBlockElements * formats::DTypeBytes(spec.dtype);
  return std::min(full, spec.bytes() - block * full);
}

void WeightSource::FillBlock(const TensorSpec& spec, uint64_t block, std::span<std::byte> out) const {
  const uint64_t bytes = BlockBytes(spec, block);
  MILLRACE_CHECK(out.size() >= bytes, "the caller gives room for the block");
  out = out.first(bytes);
  RandomStream random(seed_ ^ HashName(spec.name) ^ RandomStream::Mix(block));
  const Normal normal = DistributionOf(spec);
  switch (spec.dtype) {
    case formats::DType::kF8E4M3:
      ForEachDraw(random, bytes, [&](size_t i, uint32_t draw) { out[i] = std::byte{fp8_[draw]}; });
      break;
    case formats::DType::kI8:
      ForEachDraw(random, bytes, [&](size_t i, uint32_t draw) { out[i] = std::byte{fp4_pair_[draw]}; });
      break;
    case formats::DType::kF8E8M0: {
      const bool fp4 = spec.expert.has_value();
      FillScales(normal.deviation, fp4 ? fp4_rms_ : fp8_rms_, random, out);
      break;
    }
    case formats::DType::kBF16:
      ForEachDraw(random, bytes / sizeof(uint16_t), [&](size_t i, uint32_t draw) {
        const uint16_t code = FloatToBf16(normal.mean + normal.deviation * normal_[draw]);
        std::memcpy(out.data() + i * sizeof code, &code, sizeof code);
      });
      break;
    case formats::DType::kF32: {
      // The second, small draw fills the low bits, so that all values of a tensor differ.
      float value = 0;
      ForEachDraw(random, bytes / sizeof(float) * 2, [&](size_t i, uint32_t draw) {
        if (i % 2 == 0) {
          value = normal.mean + normal.deviation * normal_[draw];
          return;
        }
        value += normal.deviation * 0x1p-13f * normal_[draw];
        std::memcpy(out.data() + i / 2 * sizeof value, &value, sizeof value);
      });
      break;
    }
    default:
      MILLRACE_CHECK(false, "the catalogue has no other stored type");
  }
}

}  // namespace millrace::model
