#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace millrace::loadgen {

// Length of text in tokens, as the server under test counts: learnt from its usage.
struct TokenRate {
  double tokens_per_word = 1.3;
  double overhead_tokens = 0;  // what the template and the nonce add to a prompt
};

// Makes prompts: English-like sentences about nothing, with a nonce in front where no cache may help. One
// thread.
class TextMaker {
 public:
  // Words follow from `seed`; nonces never repeat, whatever the seed: they hold 64 random bits of the system.
  explicit TextMaker(uint64_t seed);

  // "[5f0c21d97ab3e640-17] ", another one at each call.
  std::string Nonce();
  // `n_words` words of sentences of nine: "The green bridge watches the queen near the tower."
  std::string Words(int64_t n_words);
  // Words for about `n_tokens` tokens, at least one word.
  std::string Tokens(int64_t n_tokens);
  // Such that a prompt of one message, a nonce included, has about `n_tokens` tokens in all.
  std::string Prompt(int64_t n_tokens);
  // Sentences of Words, for texts with something planted in them.
  std::vector<std::string> Sentences(int64_t n_sentences);

  void set_rate(const TokenRate& rate) { rate_ = rate; }
  const TokenRate& rate() const { return rate_; }
  // A number in [0, n); n above 0.
  uint64_t Below(uint64_t n);
  // True with probability `p`.
  bool Chance(double p);

 private:
  uint64_t run_id_;
  uint64_t n_nonces_ = 0;
  std::mt19937_64 generator_;
  TokenRate rate_;
};

}  // namespace millrace::loadgen
