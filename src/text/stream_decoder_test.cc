#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "text/golden_testing.h"
#include "text/utf8.h"

namespace millrace::text {
namespace {

TEST(StreamDecoder, HandsOutWholeCharactersOnly) {
  StreamDecoder decoder(MiniTokenizer());
  EXPECT_EQ(decoder.PushBytes("a\xF0\x9F"), "a");
  EXPECT_EQ(decoder.PushBytes("\x98"), "");
  EXPECT_EQ(decoder.PushBytes("\x80\xC3"), "😀");
  EXPECT_EQ(decoder.PushBytes("\xA9!"), "é!");
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoder, WhatCannotBecomeValidIsReplacedAtOnce) {
  StreamDecoder decoder(MiniTokenizer());
  EXPECT_EQ(decoder.PushBytes("\xE2\x82"), "");
  EXPECT_EQ(decoder.PushBytes("x"), "\uFFFDx");
  EXPECT_EQ(decoder.PushBytes("\x80"), "\uFFFD");
}

TEST(StreamDecoder, AnUnfinishedCharacterIsReplacedAtTheEnd) {
  StreamDecoder decoder(MiniTokenizer());
  EXPECT_EQ(decoder.PushBytes("\xF0\x9F\x98"), "");
  EXPECT_EQ(decoder.Flush(), "\uFFFD");
  EXPECT_EQ(decoder.PushBytes("ok"), "ok");
}

TEST(StreamDecoder, AnyTokenStreamGivesTheTextOfDecode) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids;
    for (auto n = random() % 30; n > 0; --n) {
      // Mostly single bytes, to meet broken characters of every kind.
      ids.push_back(static_cast<TokenId>(random() % 4 == 0 ? random() % 1280 : 3 + random() % 256));
    }
    StreamDecoder decoder(MiniTokenizer());
    std::string text;
    for (const TokenId id : ids) {
      const std::string part = decoder.Push(id);
      ASSERT_TRUE(IsUtf8(part));
      text += part;
    }
    text += decoder.Flush();
    ASSERT_EQ(text, MiniTokenizer().Decode(ids));
  }
}

}  // namespace
}  // namespace millrace::text
