#include "text/match_encoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace millrace::text {
namespace {

constexpr size_t kMaxSymbols = size_t{1} << 20;  // what PairRanks takes
constexpr uint64_t kMeanBytes = 10;

uint64_t HashBit(uint32_t symbol) {
  return uint64_t{1} << (symbol * 0x9E3779B1u >> 26);
}

}  // namespace

bool MatchEncoder::Borders::MergesAcross(Symbol left, Symbol right) const {
  return made.Find(left, right) != PairRanks::kNone || PartsMergeAcross(left, right);
}

// Back in time: of the two tokens at the border the later one is taken apart, and the two that then stood
// there must not merge before it was made. Of equal ones the left was made first, and a merge across of the
// same rank would have come before the right one.
bool MatchEncoder::Borders::PartsMergeAcross(Symbol left, Symbol right) const {
  while (std::max(left, right) >= kBytes) {
    Symbol end;
    if (left > right) {
      end = left;
      left = halves[left].right;
    } else {
      end = right + 1;
      right = halves[right].left;
    }
    if (made.Find(left, right) < end) return true;
  }
  return false;
}

std::optional<MatchEncoder> MatchEncoder::Build(Ids byte_tokens, std::span<const Merge> merges) {
  MILLRACE_CHECK(byte_tokens.size() == kBytes, "the alphabet has one token per byte");
  std::optional<std::vector<Halves>> halves = HalvesOf(byte_tokens, merges);
  if (!halves) return std::nullopt;
  std::vector<Token> tokens(halves->size());
  for (Symbol s = 0; s < tokens.size(); ++s) {
    tokens[s].id = s < kBytes ? byte_tokens[s] : merges[s - kBytes].result;
  }
  if (!MeasureTokens(*halves, tokens)) return std::nullopt;
  Borders borders{.halves = *std::move(halves), .made = PairRanks(merges.size())};
  const std::vector<bool> reachable = LearnMerges(borders, tokens);
  std::vector<std::string_view> bytes;
  const std::string text = Spell(borders.halves, tokens, bytes);
  std::vector<TokenTrie::Entry> entries;
  entries.reserve(tokens.size());
  for (Symbol s = 0; s < tokens.size(); ++s) {
    if (reachable[s]) entries.push_back({.bytes = bytes[s], .token = s});
  }
  MatchEncoder encoder(std::move(borders), std::move(tokens), TokenTrie(std::move(entries)));
  for (Symbol s = kBytes; s < encoder.tokens_.size(); ++s) {
    bytes[s].remove_suffix(1);
    encoder.tokens_[s].shorter = encoder.trie_.Longest(bytes[s]).token;
  }
  return encoder;
}

MatchEncoder::MatchEncoder(Borders borders, std::vector<Token> tokens, TokenTrie trie)
    : borders_(std::move(borders)), tokens_(std::move(tokens)), trie_(std::move(trie)) {}

uint64_t MatchEncoder::BytesFor(uint64_t n_tokens) {
  return n_tokens * (sizeof(Halves) + sizeof(Token)) + PairRanks::BytesFor(n_tokens) +
         TokenTrie::BytesFor(n_tokens);
}

std::optional<std::vector<MatchEncoder::Halves>> MatchEncoder::HalvesOf(Ids byte_tokens,
                                                                        std::span<const Merge> merges) {
  if (kBytes + merges.size() > kMaxSymbols) return std::nullopt;
  std::vector<Symbol> symbols(kMaxSymbols, kNone);  // by id
  std::vector<Halves> halves(kBytes);
  halves.reserve(kBytes + merges.size());
  for (Symbol byte = 0; byte < kBytes; ++byte) symbols[static_cast<size_t>(byte_tokens[byte])] = byte;
  for (const Merge& merge : merges) {
    const Halves both{.left = symbols[static_cast<size_t>(merge.left)],
                      .right = symbols[static_cast<size_t>(merge.right)]};
    Symbol& result = symbols[static_cast<size_t>(merge.result)];
    if (both.left == kNone || both.right == kNone || result != kNone) return std::nullopt;
    result = static_cast<Symbol>(halves.size());
    halves.push_back(both);
  }
  return halves;
}

// Fills in the lengths; false if they are too much in sum.
bool MatchEncoder::MeasureTokens(std::span<const Halves> halves, std::vector<Token>& tokens) {
  uint64_t sum = 0;
  for (Symbol s = 0; s < tokens.size(); ++s) {
    tokens[s].length = s < kBytes ? 1 : tokens[halves[s].left].length + tokens[halves[s].right].length;
    sum += tokens[s].length;
    if (sum > kMeanBytes * tokens.size()) return false;
  }
  return true;
}

// Fills in the merges and what tokens know about theirs; which symbols their own bytes become. A merge that
// makes another one takes place nowhere.
std::vector<bool> MatchEncoder::LearnMerges(Borders& borders, std::vector<Token>& tokens) {
  std::vector<bool> reachable(tokens.size(), true);
  std::vector<uint64_t> so_far(tokens.size(), 0);  // what a symbol merges with
  for (Symbol s = 0; s < tokens.size(); ++s) {
    tokens[s].first = HashBit(s);
    if (s < kBytes) continue;
    const auto [left, right] = borders.halves[s];
    reachable[s] = reachable[left] && reachable[right] && !borders.PartsMergeAcross(left, right);
    tokens[s].first |= tokens[left].first;
    tokens[s].merging = tokens[right].merging | so_far[right];
    if (!reachable[s]) continue;
    borders.made.Insert(left, right, s);
    so_far[left] |= HashBit(right);
  }
  return reachable;
}

// The bytes of all symbols, which lie in the text returned.
std::string MatchEncoder::Spell(std::span<const Halves> halves, std::span<const Token> tokens,
                                std::vector<std::string_view>& bytes) {
  size_t length = 0;
  for (const Token& token : tokens) length += token.length;
  std::string text(length, '\0');
  char* at = text.data();
  for (Symbol s = 0; s < tokens.size(); ++s) {
    char* const begin = at;
    if (s < kBytes) {
      *at++ = static_cast<char>(s);
    } else {
      for (const Symbol half : {halves[s].left, halves[s].right}) at = std::ranges::copy(bytes[half], at).out;
    }
    bytes.emplace_back(begin, at);
  }
  return text;
}

inline MatchEncoder::Place MatchEncoder::LongestBehind(std::string_view piece, size_t end) const {
  const TokenTrie::Match match = trie_.Longest(piece.substr(end));
  return {.symbol = match.token, .end = end + match.length, .is_longest = true};
}

// A longest token does not merge with what follows: the two would have been a longer one.
inline bool MatchEncoder::Fits(const Place& last, Symbol next) const {
  if (last.symbol == kNone) return true;
  if (!last.is_longest) return !borders_.MergesAcross(last.symbol, next);
  if ((tokens_[last.symbol].merging & tokens_[next].first) == 0) return true;
  return !borders_.PartsMergeAcross(last.symbol, next);
}

void MatchEncoder::Encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
  const size_t first = ids.size();  // behind it symbols, until the end
  std::vector<uint64_t>& dead = scratch.dead_;
  dead.clear();
  if (piece.empty()) return;
  Place last;
  Place next = LongestBehind(piece, 0);
  for (;;) {
    const bool is_dead = !dead.empty() && (dead[next.end / 64] >> (next.end % 64) & 1) != 0;
    if (!is_dead && Fits(last, next.symbol)) {
      ids.push_back(static_cast<TokenId>(next.symbol));
      last = next;
      if (last.end == piece.size()) break;
      next = LongestBehind(piece, last.end);
    } else if (const Symbol shorter = tokens_[next.symbol].shorter; shorter != kNone) {
      next = {.symbol = shorter, .end = last.end + tokens_[shorter].length};
    } else {
      MILLRACE_CHECK(ids.size() > first, "every piece has a cut");
      if (dead.empty()) dead.resize(piece.size() / 64 + 1);
      dead[last.end / 64] |= uint64_t{1} << (last.end % 64);
      next = last;
      ids.pop_back();
      last = {.symbol = ids.size() == first ? kNone : static_cast<Symbol>(ids.back()),
              .end = last.end - tokens_[next.symbol].length};
    }
  }
  for (size_t i = first; i < ids.size(); ++i) ids[i] = tokens_[static_cast<size_t>(ids[i])].id;
}

}  // namespace millrace::text
