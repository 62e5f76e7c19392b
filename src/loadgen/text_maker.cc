#include "loadgen/text_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace millrace::loadgen {
namespace {

constexpr std::array<std::string_view, 12> kNouns = {"bridge", "queen", "farmer", "sailor", "baker", "king",
                                                     "horse",  "tree",  "tower",  "ship",   "lamp",  "boat"};
constexpr std::array<std::string_view, 6> kAdjectives = {"green", "happy", "small", "quiet", "heavy", "slow"};
constexpr std::array<std::string_view, 6> kVerbs = {"watches", "finds",  "carries",
                                                    "hears",   "builds", "paints"};
constexpr int64_t kWordsOfSentence = 9;

uint64_t RandomBits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

TextMaker::TextMaker(uint64_t seed) : run_id_(RandomBits()), generator_(seed) {}

std::string TextMaker::Nonce() {
  return fmt::format("[{:016x}-{}] ", run_id_, n_nonces_++);
}

uint64_t TextMaker::Below(uint64_t n) {
  return generator_() % n;
}

bool TextMaker::Chance(double p) {
  return static_cast<double>(generator_() >> 11) * 0x1p-53 < p;
}

std::vector<std::string> TextMaker::Sentences(int64_t n_sentences) {
  std::vector<std::string> sentences;
  for (int64_t i = 0; i < n_sentences; ++i) {
    const auto noun = [&] { return kNouns[Below(kNouns.size())]; };
    const std::string_view subject = noun(), object = noun(), place = noun();
    const std::string_view adjective = kAdjectives[Below(kAdjectives.size())];
    const std::string_view verb = kVerbs[Below(kVerbs.size())];
    sentences.push_back(
        fmt::format("The {} {} {} the {} near the {}.", adjective, subject, verb, object, place));
  }
  return sentences;
}

std::string TextMaker::Words(int64_t n_words) {
  std::string text =
      fmt::format("{}", fmt::join(Sentences((n_words + kWordsOfSentence - 1) / kWordsOfSentence), " "));
  size_t end = 0;
  for (int64_t w = 0; w < n_words; ++w) end = std::min(text.find(' ', end == 0 ? 0 : end + 1), text.size());
  text.resize(end);
  return text;
}

std::string TextMaker::Tokens(int64_t n_tokens) {
  const double words = static_cast<double>(n_tokens) / rate_.tokens_per_word;
  return Words(std::max<int64_t>(1, std::llround(words)));
}

std::string TextMaker::Prompt(int64_t n_tokens) {
  const auto overhead = static_cast<int64_t>(std::llround(rate_.overhead_tokens));
  return Nonce() + Tokens(n_tokens - overhead);
}

}  // namespace millrace::loadgen
