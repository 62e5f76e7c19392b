#include "model/synthetic_tokenizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace millrace::model {
namespace {

struct ControlToken {
  std::string_view content;
  bool special;
};

// At ids 0, 1 and 2, as in every model of the family.
constexpr ControlToken kFirstTokens[] = {
    {"<｜begin▁of▁sentence｜>", true},
    {"<｜end▁of▁sentence｜>", true},
    {"<｜▁pad▁｜>", true},
};

// In the order of the released table, which has them at other ids.
constexpr ControlToken kLastTokens[] = {
    {"<｜place▁holder▁no▁0｜>", true},
    {"<｜System｜>", true},
    {"<｜fim▁hole｜>", true},
    {"<｜fim▁begin｜>", true},
    {"<｜fim▁end｜>", true},
    {"<｜User｜>", true},
    {"<｜Assistant｜>", true},
    {"<|EOT|>", true},
    {"<think>", false},
    {"</think>", false},
    {"｜DSML｜", false},
    {"<｜begin▁sys｜>", true},
    {"<｜end▁sys｜>", true},
    {"<｜latest_reminder｜>", true},
    {"<｜action｜>", true},
    {"<｜query｜>", true},
    {"<｜authority｜>", true},
    {"<｜domain｜>", true},
    {"<｜task｜>", true},
    {"<｜political｜>", true},
    {"<｜entity｜>", true},
    {"<｜title｜>", true},
    {"<｜safety｜>", true},
    {"<｜answer｜>", true},
    {"<｜search｜>", true},
    {"<dsml:", true},
    {"</dsml:", true},
    {"<｜search▁begin｜>", true},
    {"<｜search▁end｜>", true},
    {"<｜extracted_url｜>", true},
    {"<｜read_url｜>", true},
    {"<｜end_of_query｜>", true},
    {"<｜rl_image_pad｜>", true},
    {"<｜rl_image_start｜>", true},
    {"<｜deepseek_image｜>", true},
    {"<｜/polygon｜>", true},
    {"<｜polygon｜>", true},
    {"<｜/point｜>", true},
    {"<｜point｜>", true},
    {"<｜/box｜>", true},
    {"<｜box｜>", true},
    {"<｜/ref｜>", true},
    {"<｜ref｜>", true},
};

// What the merges are learned from: lower-case words, so that every merge lies inside one piece of the
// splitting rules.
constexpr std::string_view kSentences =
    "the river runs under the old stone bridge and turns the wheel of the mill "
    "water falls on the wheel and the wheel turns the stone that grinds the grain into flour "
    "every morning the miller opens the gate and lets the water into the race "
    "when there is much rain the gate is closed again and the water goes around the mill "
    "a question is answered with words and the words are made of letters "
    "what is the capital of this country and how many people live there today "
    "please write a short story about a small dog that lives near the green hill "
    "once upon a time there was a quiet village between the forest and the sea "
    "the children walked to school together and talked about the stars at night "
    "she opened the window because the room was warm and the evening air was cool "
    "he answered that he would return before the end of the week if the weather was good "
    "numbers and names are copied exactly while thoughts may wander where they please "
    "the answer to the first question is not always the answer to the second question "
    "this program reads a list of numbers and prints the largest of them "
    "first we look at the input then we count the words and finally we write the result "
    "memory is planned before the first request and nothing grows without a limit "
    "a server that started never dies of memory and a client that leaves frees its place "
    "tell me more about the history of paper and of the people who made it by hand "
    "the secret code of the garden door is known only to the old gardener "
    "there are seven days in a week and twelve months in a year "
    "yes that is right and no that is wrong are both useful answers "
    "i do not know the answer but i can help you to find it "
    "you are a helpful assistant and you answer in clear and simple sentences "
    "could you explain why the sky is blue and why the grass is green "
    "they should have taken the other road which leads over the mountain "
    "some things change quickly and other things stay as they were for hundreds of years "
    "the train arrives at the station in the afternoon and leaves again in the evening "
    "bread butter cheese apples onions carrots salt and pepper are on the table "
    "red orange yellow green blue violet black white silver golden "
    "one two three four five six seven eight nine ten hundred thousand million "
    "monday tuesday wednesday thursday friday saturday sunday "
    "function return value string number object false true null while break continue class public private "
    "because although however therefore perhaps certainly usually sometimes often never always "
    "weather temperature city country language message system user reason effort model token "
    "working running thinking reading writing speaking listening learning building testing "
    "information education situation condition position direction function relation nation station "
    "beautiful wonderful careful powerful useful helpful hopeful thankful "
    "quickly slowly carefully exactly probably really finally mainly early ";

using Word = std::vector<int>;  // token ids

// Byte-pair encoding: the most frequent pair of neighbours becomes a token, again and again.
class MergeLearner {
 public:
  MergeLearner(formats::TokenizerData& tokenizer, TokenId first_byte) : tokenizer_(tokenizer) {
    for (const std::string& token : tokenizer_.tokens) known_.insert(token);
    std::map<std::string_view, int> counts;
    for (size_t at = 0; at < kSentences.size();) {
      const size_t end = std::min(kSentences.find(' ', at), kSentences.size());
      if (end > at) ++counts[kSentences.substr(at, end - at)];
      at = end + 1;
    }
    for (const auto& [text, count] : counts) {
      Word word = {first_byte + ' '};
      for (const char c : text) word.push_back(first_byte + static_cast<unsigned char>(c));
      words_.emplace_back(std::move(word), count);
    }
  }

  // Adds the next merge and its token; false when the sentences have no pair left.
  bool LearnOne() {
    std::map<std::pair<int, int>, int> pairs;
    for (const auto& [word, count] : words_)
      for (size_t i = 0; i + 1 < word.size(); ++i) pairs[{word[i], word[i + 1]}] += count;
    // Two ways to spell one token are not two tokens.
    std::erase_if(pairs, [&](const auto& pair) { return known_.contains(Joined(pair.first)); });
    const auto best = std::max_element(pairs.begin(), pairs.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == pairs.end()) return false;
    const auto [left, right] = best->first;
    const int id = static_cast<int>(tokenizer_.tokens.size());
    tokenizer_.merges.emplace_back(Token(left), Token(right));
    tokenizer_.tokens.push_back(Joined(best->first));
    known_.insert(tokenizer_.tokens.back());
    for (auto& [word, count] : words_) Merge(word, left, right, id);
    return true;
  }

 private:
  const std::string& Token(int id) const { return tokenizer_.tokens[static_cast<size_t>(id)]; }
  std::string Joined(std::pair<int, int> pair) const { return Token(pair.first) + Token(pair.second); }

  static void Merge(Word& word, int left, int right, int id) {
    size_t kept = 0;
    for (size_t i = 0; i < word.size(); ++i) {
      const bool pair = i + 1 < word.size() && word[i] == left && word[i + 1] == right;
      word[kept++] = pair ? id : word[i];
      if (pair) ++i;
    }
    word.resize(kept);
  }

  formats::TokenizerData& tokenizer_;
  std::vector<std::pair<Word, int>> words_;  // with their counts
  std::set<std::string> known_;
};

void AddControlToken(formats::TokenizerData& tokenizer, const ControlToken& token) {
  const auto id = static_cast<TokenId>(tokenizer.tokens.size());
  tokenizer.tokens.emplace_back(token.content);
  tokenizer.added_tokens.push_back(
      {.id = id, .content = std::string(token.content), .special = token.special});
}

}  // namespace

formats::TokenizerData MakeSyntheticTokenizer(int64_t vocab_size) {
  MILLRACE_CHECK(vocab_size >= 512, "bytes, control tokens and some merges need room");
  formats::TokenizerData tokenizer;
  for (const ControlToken& token : kFirstTokens) AddControlToken(tokenizer, token);
  const auto first_byte = static_cast<TokenId>(tokenizer.tokens.size());
  for (int byte = 0; byte < 256; ++byte)
    tokenizer.tokens.push_back(formats::ByteLevelEncode(std::string(1, static_cast<char>(byte))));

  const size_t first_control = static_cast<size_t>(vocab_size) - std::size(kLastTokens);
  MergeLearner learner(tokenizer, first_byte);
  while (tokenizer.tokens.size() < first_control && learner.LearnOne()) {
  }
  tokenizer.tokens.resize(first_control);
  for (const ControlToken& token : kLastTokens) AddControlToken(tokenizer, token);
  return tokenizer;
}

TokenId ControlTokenId(const formats::TokenizerData& tokenizer, std::string_view content) {
  const auto at = std::find_if(tokenizer.added_tokens.begin(), tokenizer.added_tokens.end(),
                               [&](const formats::AddedToken& token) { return token.content == content; });
  MILLRACE_CHECK(at != tokenizer.added_tokens.end(), "the caller asks for a token of the built-in list");
  return at->id;
}

}  // namespace millrace::model
