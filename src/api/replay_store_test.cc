#include "api/replay_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace millrace::api {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using text::ChatMessage;
using text::Role;

ChatMessage User(const std::string& text) {
  return {.role = Role::kUser, .content = text};
}

ChatMessage Assistant(const std::string& text, const std::string& reasoning = "") {
  return {.role = Role::kAssistant, .content = text, .reasoning = reasoning};
}

ConversationHash HashOf(const std::vector<ChatMessage>& messages) {
  ConversationHash hash;
  for (const ChatMessage& message : messages) hash.Add(message);
  return hash;
}

GeneratedAnswer Generated(const std::string& text, std::vector<TokenId> ids,
                          const std::string& reasoning = "") {
  GeneratedAnswer answer;
  answer.ids = std::move(ids);
  answer.content = text;
  answer.reasoning = reasoning;
  return answer;
}

TEST(ConversationHash, KnowsEveryMessageAndItsPlace) {
  EXPECT_EQ(HashOf({User("a"), User("b")}).value(), HashOf({User("a"), User("b")}).value());
  EXPECT_NE(HashOf({User("a"), User("b")}).value(), HashOf({User("b"), User("a")}).value());
  EXPECT_NE(HashOf({User("a"), User("b")}).value(), HashOf({User("ab")}).value());
  EXPECT_NE(HashOf({User("a")}).value(), HashOf({Assistant("a")}).value());
  EXPECT_EQ(HashOf({Assistant("a", "why")}).value(), HashOf({Assistant("a")}).value());
}

TEST(ConversationHash, ResultsInAnyOrderAreTheSame) {
  const ChatMessage r{.role = Role::kTool, .content = "r", .tool_call_id = "1"};
  const ChatMessage s{.role = Role::kTool, .content = "s", .tool_call_id = "2"};
  EXPECT_EQ(HashOf({r, s}).value(), HashOf({s, r}).value());
  EXPECT_EQ(HashOf({r, s, User("u")}).value(), HashOf({s, r, User("u")}).value());
  EXPECT_NE(HashOf({r, s}).value(), HashOf({r, r}).value());
  EXPECT_NE(HashOf({r, User("u"), s}).value(), HashOf({s, User("u"), r}).value());
}

TEST(ConversationHash, ArgumentsAreTheSameHoweverWritten) {
  EXPECT_EQ(CanonicalArguments(R"({"b":1,"a":[1.0,{"y":2,"x":1e1}]})"),
            CanonicalArguments(R"({ "a": [1, {"x":10, "y": 2.0}], "b":1 })"));
  EXPECT_EQ(CanonicalArguments(" "), CanonicalArguments("{}"));
  EXPECT_NE(CanonicalArguments(R"({"a":1})"), CanonicalArguments(R"({"a":"1"})"));
  EXPECT_NE(CanonicalArguments(R"({"a":9007199254740993})"), CanonicalArguments(R"({"a":9007199254740992})"));
  EXPECT_EQ(CanonicalArguments("{not json"), "{not json");
}

TEST(ReplayStore, FindsAnAnswerByTheConversationInFrontOfIt) {
  ReplayStore store(1 << 20);
  store.Add(HashOf({User("a")}), Generated("x", {1, 2}));
  std::vector<ChatMessage> same = {User("a"), Assistant("x"), User("more")};
  EXPECT_EQ(store.Restore(same).value(), HashOf(same).value());
  EXPECT_THAT(same[1].generated_ids, ElementsAre(1, 2));
  std::vector<ChatMessage> other = {User("b"), Assistant("x")}, changed = {User("a"), Assistant("y")};
  store.Restore(other);
  store.Restore(changed);
  EXPECT_THAT(other[1].generated_ids, IsEmpty());
  EXPECT_THAT(changed[1].generated_ids, IsEmpty());
  EXPECT_EQ(store.stats().hits, 1u);
  EXPECT_EQ(store.stats().misses, 2u);
}

TEST(ReplayStore, ReasoningThatComesBackMustBeTheSame) {
  ReplayStore store(1 << 20);
  store.Add(HashOf({User("a")}), Generated("x", {1}, "first"));
  store.Add(HashOf({User("a")}), Generated("x", {2}, "second"));
  const auto restored = [&](const std::string& reasoning) {
    std::vector<ChatMessage> messages = {User("a"), Assistant("x", reasoning)};
    store.Restore(messages);
    return messages[1].generated_ids;
  };
  EXPECT_THAT(restored("first"), ElementsAre(1)) << "of two answers that read the same";
  EXPECT_THAT(restored("second"), ElementsAre(2));
  EXPECT_THAT(restored(""), ElementsAre(2)) << "the newer";
  EXPECT_THAT(restored("third"), IsEmpty());
}

TEST(ReplayStore, FindsAnAnswerByItsCallsWhateverStandsInFront) {
  const std::string id = "0123456789abcdef01234567";
  ReplayStore store(1 << 20);
  GeneratedAnswer answer = Generated("", {7});
  answer.calls = {{.id = id, .name = "ns::f", .arguments = R"({"a": 1})"}};
  store.Add(HashOf({User("a")}), answer);
  const auto restored = [&](const std::string& call_id, const std::string& name,
                            const std::string& arguments) {
    ChatMessage message = Assistant("");
    message.tool_calls = {{.id = call_id, .name = name, .arguments = arguments}};
    std::vector<ChatMessage> messages = {User("compacted"), message};
    store.Restore(messages);
    return messages[1].generated_ids;
  };
  for (const char* prefix : {"", "call_", "toolu_", "fc_call_"})
    EXPECT_THAT(restored(prefix + id, "ns::f", R"({"a":1})"), ElementsAre(7)) << prefix;
  EXPECT_THAT(restored("call_" + id, "f", R"({"a":1})"), ElementsAre(7)) << "the namespace was dropped";
  EXPECT_THAT(restored("call_" + id, "g", R"({"a":1})"), IsEmpty());
  EXPECT_THAT(restored("call_" + id, "ns::f", R"({"a":2})"), IsEmpty());
  EXPECT_THAT(restored("another", "ns::f", R"({"a":1})"), IsEmpty());
}

TEST(ReplayStore, ForgetsTheLeastRecentlyUsed) {
  const std::vector<TokenId> ids(1000, 5);
  ReplayStore store(3 * 5000);
  const auto add = [&](const std::string& text) { store.Add(HashOf({User(text)}), Generated(text, ids)); };
  const auto knows = [&](const std::string& text) {
    std::vector<ChatMessage> messages = {User(text), Assistant(text)};
    store.Restore(messages);
    return !messages[1].generated_ids.empty();
  };
  add("a"), add("b"), add("c");
  EXPECT_TRUE(knows("a"));
  add("d");
  EXPECT_FALSE(knows("b"));
  EXPECT_TRUE(knows("a") && knows("c") && knows("d"));
  EXPECT_EQ(store.stats().answers, 3u);
  EXPECT_LE(store.stats().bytes, 15000u);
  store.Add(HashOf({User("e")}), Generated("e", std::vector<TokenId>(5000, 5)));
  EXPECT_FALSE(knows("e")) << "larger than the store";
  EXPECT_EQ(store.stats().answers, 3u);
}

TEST(ReplayStore, ServesManyThreads) {
  ReplayStore store(40'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (int i = 0; i < 300; ++i) {
        const std::string text = std::to_string((i * 7 + t) % 50);
        store.Add(HashOf({User(text)}), Generated(text, std::vector<TokenId>(100, i)));
        std::vector<ChatMessage> messages = {User(text), Assistant(text)};
        store.Restore(messages);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.stats().hits + store.stats().misses, 1200u);
  EXPECT_LE(store.stats().bytes, 40'000u);
}

}  // namespace
}  // namespace millrace::api
