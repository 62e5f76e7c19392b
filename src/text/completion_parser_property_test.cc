#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/completion_parser_testing.h"
#include "text/completion_symbols.h"
#include "text/small_tokenizer_testing.h"

// Random completions, well-formed and damaged, under random cuts: as text and as tokens.
namespace millrace::text {
namespace {

#ifdef MILLRACE_SANITIZED
constexpr int kCompletions = 4'000;
#else
constexpr int kCompletions = 100'000;
#endif
constexpr int kCutsAsText = 17;
constexpr int kCutsAsTokens = 3;

constexpr std::string_view kDsml = "\xF8";
constexpr std::string_view kThinkBegin = "\xF9";
constexpr std::string_view kThinkEnd = "\xFA";
constexpr std::string_view kEnd = "\xFB";

// Parts of texts that are no markup, whatever stands beside them.
constexpr std::string_view kTexts[] = {"a",           "Hello, world. ",
                                       "\n",          "\n\n",
                                       "é",           "漢字",
                                       "👩‍👧", "\"",
                                       "<",           "</",
                                       "</thi",       ">",
                                       "/>",          "<div a=\"b\">",
                                       "<｜",         "｜",
                                       "\\",          "\x01",
                                       "\t",          "{",
                                       "[1, 2]",      "<invoke>",
                                       "DSM",         " "};
// What damage inserts.
constexpr std::string_view kStumbles[] = {"\n",
                                          "\n\n",
                                          "<",
                                          "</",
                                          ">",
                                          "/",
                                          "\"",
                                          " ",
                                          "=",
                                          kDsml,
                                          kThinkBegin,
                                          kThinkEnd,
                                          kEnd,
                                          "｜",
                                          "|DSML|",
                                          "calls",
                                          "<\xF8 calls>",
                                          "<\xF8tool_calls>",
                                          "</\xF8 calls>",
                                          "<\xF8 invoke name=\"weather\">",
                                          "<\xF8 invoke name=\"x\"/>",
                                          "</\xF8 invoke>",
                                          "<\xF8 parameter name=\"city\" string=\"true\">",
                                          "<\xF8 parameter name=\"days\">",
                                          "<\xF8 parameter name=\"input\">{\"city\": \"a\"}",
                                          "</\xF8 parameter>",
                                          "<|DSML| parameter city=a>",
                                          "{\"a\": [1]}",
                                          "\xE6",
                                          "\xBC"};
constexpr std::string_view kMarks[] = {kDsml,          kDsml,    kDsml,      kDsml,    "｜\xF8｜",
                                       "｜｜DSML｜｜", "|DSML|", "||DSML||", "‖DSML‖", "DSML｜"};
constexpr std::string_view kCallsNames[] = {"calls", "tool_calls", "function_calls"};
constexpr std::string_view kToolNames[] = {"weather", "noop", "ns::look", "other", "a b"};
constexpr std::string_view kParameterNames[] = {"city", "days", "", "a\nb>", "é"};
struct JsonValue {
  std::string_view written;
  std::string_view canonical;
};
constexpr JsonValue kJsonValues[] = {
    {"3", "3"},       {"[1,2]", "[1, 2]"}, {" {\"b\":1.50}\n", "{\"b\": 1.5}"},
    {"null", "null"}, {"1e5", "100000.0"}, {"nonsense", "\"nonsense\""},
    {"", "\"\""}};

std::shared_ptr<const ToolSchemas> Tools() {
  const auto weather =
      ParseOrderedJson(R"({"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})");
  const auto none = ParseOrderedJson("{}");
  return std::make_shared<const ToolSchemas>(std::vector<ToolSchema>{
      ToolSchema::Of("weather", *weather), ToolSchema::Of("noop", *none), ToolSchema::Of("ns::look", *none)});
}

struct Completion {
  std::string symbols;
  bool thinking = false;
  CompletionEnd end = CompletionEnd::kStop;
  bool damaged = false;
  ParsedMessage meant;  // of one that is not damaged
};

class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}

  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool Chance(size_t one_in) { return Below(one_in) == 0; }
  template <typename T, size_t n>
  const T& Pick(const T (&choices)[n]) {
    return choices[Below(n)];
  }

  Completion Write() {
    Completion c;
    c.thinking = Chance(2);
    if (c.thinking) {
      if (Chance(8)) c.symbols += kThinkBegin;
      c.meant.reasoning = Text(6);
      c.symbols += c.meant.reasoning;
      c.symbols += kThinkEnd;
    }
    c.meant.content = Text(6);
    c.symbols += c.meant.content;
    if (!Chance(4)) WriteBlock(c);
    if (!Chance(4)) c.symbols += kEnd;
    if (Chance(2)) Damage(c);
    return c;
  }

 private:
  std::string Text(size_t most) {
    std::string text;
    for (size_t n = Below(most); n > 0; --n) text += Pick(kTexts);
    return text;
  }

  std::string Tag(std::string_view slash, std::string_view name, std::string_view rest) {
    const std::string_view mark = mixed_ ? Pick(kMarks) : mark_;
    const bool spaced = mixed_ ? Chance(2) : spaced_;
    std::string tag = "<";
    for (const std::string_view part :
         {slash, mark, std::string_view(" ").substr(spaced ? 0 : 1), name, rest}) {
      tag += part;
    }
    return tag + ">";
  }

  void WriteBlock(Completion& c) {
    mark_ = Pick(kMarks);
    mixed_ = Chance(8);
    spaced_ = Chance(2);
    c.symbols += "\n\n" + Tag("", Pick(kCallsNames), "") + "\n";
    for (size_t n = 1 + Below(2); n > 0; --n) WriteCall(c);
    c.symbols += Tag("/", Pick(kCallsNames), "");
    if (Chance(8)) c.symbols += Text(4);
  }

  void WriteCall(Completion& c) {
    const std::string name(Pick(kToolNames));
    c.symbols += Tag("", "invoke", " name=\"" + name + "\"") + "\n";
    std::string arguments;
    for (const std::string_view parameter : kParameterNames) {
      if (!Chance(3)) continue;
      arguments += arguments.empty() ? "{\"" : ", \"";
      AppendJsonEscaped(parameter, arguments);
      arguments += "\": ";
      WriteParameter(parameter, arguments, c.symbols);
    }
    c.symbols += Tag("/", "invoke", "") + "\n";
    c.meant.calls.push_back(
        {.name = name, .arguments = arguments.empty() ? "{}" : arguments + "}", .complete = true});
  }

  void WriteParameter(std::string_view name, std::string& arguments, std::string& symbols) {
    const bool is_text = Chance(2);
    std::string attributes = " name=\"" + std::string(name) + "\"";
    attributes.insert(Chance(2) ? 0 : attributes.size(), is_text ? " string=\"true\"" : " string=\"false\"");
    symbols += Tag("", "parameter", attributes);
    if (is_text) {
      const std::string text = Text(5);
      symbols += text;
      arguments += '"';
      AppendJsonEscaped(text, arguments);
      arguments += '"';
    } else {
      const JsonValue& value = Pick(kJsonValues);
      symbols += value.written;
      arguments += value.canonical;
    }
    symbols += Tag("/", "parameter", "") + "\n";
  }

  void Damage(Completion& c) {
    c.damaged = true;
    if (Chance(3)) c.end = CompletionEnd::kLength;
    for (size_t n = 1 + Below(4); n > 0; --n) {
      std::string& symbols = c.symbols;
      const size_t at = Below(symbols.size() + 1);
      const size_t size = Below(std::min<size_t>(symbols.size() - at, 30) + 1);
      switch (Below(5)) {
        case 0:
          symbols.erase(at, size);
          break;
        case 1:
          symbols.insert(at, symbols.substr(at, size));
          break;
        case 2:
          if (Chance(4)) symbols.resize(at);
          break;
        default:
          symbols.insert(at, Pick(kStumbles));
          break;
      }
    }
  }

  std::mt19937_64 random_;
  std::string_view mark_;
  bool mixed_ = false;  // each tag in another spelling
  bool spaced_ = false;
};

std::string Spelled(std::string_view symbols) {
  std::string text;
  AppendSpelled(symbols, text);
  return text;
}

// Whether no letters of ordinary text spell a control token, so that text and tokens mean the same.
bool IsUnambiguous(std::string_view symbols) {
  constexpr char kSymbols[] = {kDsmlSymbol, kThinkBeginSymbol, kThinkEndSymbol, kEndSymbol};
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i] != '<' && symbols[i] != '\xEF') continue;
    // No text that continues across a control token spells another.
    const std::string text = Spelled(symbols.substr(i, 40));
    for (const char symbol : kSymbols) {
      if (text.starts_with(SymbolLiteral(symbol))) return false;
    }
  }
  return true;
}

class Checker {
 public:
  Checker() : small_(SmallTokenizer::Make()), tools_(Tools()) {}

  void Check(uint64_t seed) {
    Writer random(seed);
    const Completion c = random.Write();
    const std::string text = Spelled(c.symbols);
    const ParseCase as_text{.completion = text, .thinking = c.thinking, .tools = tools_, .end = c.end};
    const ParseResult whole = ParseCut(as_text, {});
    for (int i = 0; i < kCutsAsText; ++i) {
      ASSERT_EQ(ParseCut(as_text, RandomCuts(text, random)), whole) << Told(seed, text);
    }
    const std::string source = Spelled(Repaired(c.symbols));
    const ParseResult tokens = ParseTokens(c, source, random);
    for (int i = 1; i < kCutsAsTokens; ++i) {
      ASSERT_EQ(ParseTokens(c, source, random), tokens) << Told(seed, text);
    }
    if (IsUnambiguous(c.symbols)) {
      ASSERT_EQ(tokens, whole) << Told(seed, text);
    }
    CheckMessage(tokens.message, seed, text);
    if (!c.damaged) {
      ASSERT_EQ(tokens.message, c.meant) << Told(seed, text);
    }
  }

 private:
  static std::string Told(uint64_t seed, std::string_view text) {
    return "seed " + std::to_string(seed) + ": " + ::testing::PrintToString(text);
  }

  static std::vector<size_t> RandomCuts(std::string_view text, Writer& random) {
    if (random.Chance(16)) return EveryByte(text);
    std::vector<size_t> cuts(random.Below(9));
    for (size_t& cut : cuts) cut = random.Below(text.size() + 1);
    std::ranges::sort(cuts);
    return cuts;
  }

  // The completion as its tokens decode: a control token interrupts an unfinished character.
  static std::string Repaired(std::string_view symbols) {
    SymbolReader reader;
    std::string repaired;
    for (const char symbol : symbols) {
      if (IsControlSymbol(symbol)) {
        reader.PushControl(symbol, repaired);
      } else {
        reader.PushBytes({&symbol, 1}, repaired);
      }
    }
    reader.Finish(repaired);
    return repaired;
  }

  TokenId ControlToken(char symbol) const {
    switch (symbol) {
      case kDsmlSymbol:
        return small_.ids.dsml;
      case kThinkBeginSymbol:
        return small_.ids.think_begin;
      case kThinkEndSymbol:
        return small_.ids.think_end;
      default:
        return small_.ids.eos;
    }
  }

  // Parses the completion as tokens, each run of text tokenised at random, with accidental control tokens.
  ParseResult ParseTokens(const Completion& c, std::string_view source, Writer& random) {
    CompletionParser parser(small_.tokenizer, small_.ids,
                            {.starts_in_reasoning = c.thinking, .tools = tools_});
    DeltaChecker checker(source);
    std::string_view rest = c.symbols;
    const bool bytes_only = random.Chance(2);
    while (!rest.empty()) {
      size_t size = 1;
      auto id = static_cast<TokenId>(static_cast<uint8_t>(rest[0]));
      if (IsControlSymbol(rest[0])) {
        id = ControlToken(rest[0]);
        if (random.Chance(4)) checker.Add(parser.Push(small_.ids.user));
      } else if (!bytes_only) {
        for (size_t m = 0; m < std::size(SmallTokenizer::kMerges); ++m) {
          const auto& [left, right] = SmallTokenizer::kMerges[m];
          if (!rest.starts_with(left) || !rest.substr(left.size()).starts_with(right) || random.Chance(3))
            continue;
          size = left.size() + right.size();
          id = static_cast<TokenId>(256 + m);
          break;
        }
      }
      checker.Add(parser.Push(id));
      rest.remove_prefix(size);
    }
    checker.Add(parser.Finish(c.end));
    EXPECT_EQ(checker.error(), nullptr) << checker.error() << " in " << source;
    EXPECT_EQ(parser.position(), source.size());
    return {.message = checker.message(), .reason = parser.reason()};
  }

  static void CheckMessage(const ParsedMessage& message, uint64_t seed, std::string_view text) {
    const auto is_clean = [](std::string_view field) {
      return field.find(SymbolLiteral(kEndSymbol)) == std::string_view::npos &&
             field.find("<｜User｜>") == std::string_view::npos &&
             std::ranges::none_of(field, IsControlSymbol);
    };
    ASSERT_TRUE(is_clean(message.reasoning) && is_clean(message.content)) << Told(seed, text);
    for (const ParsedCall& call : message.calls) {
      ASSERT_TRUE(is_clean(call.name) && is_clean(call.arguments)) << Told(seed, text);
      if (!call.complete) continue;
      const auto arguments = ParseOrderedJson(call.arguments);
      ASSERT_TRUE(arguments.ok() && arguments->if_object() != nullptr) << Told(seed, text) << call.arguments;
    }
  }

  SmallTokenizer small_;
  std::shared_ptr<const ToolSchemas> tools_;
};

TEST(CompletionParserProperty, AnyCompletionParsesTheSameHoweverItIsCut) {
  Checker checker;
  for (uint64_t seed = 0; seed < kCompletions && !::testing::Test::HasFailure(); ++seed) checker.Check(seed);
}

}  // namespace
}  // namespace millrace::text
