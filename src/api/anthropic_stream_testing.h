#pragma once

#include <gtest/gtest.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Heavy header (Boost.JSON): for tests only.

namespace millrace::api {

// Puts the events of a stream together as Anthropic's SDK does, and fails the test where one of them could
// not come in Anthropic's order: blocks one after the other, each begun, filled with what belongs to its
// type, and ended; the end of the message once, behind all of them.
class AnthropicStreamReader {
 public:
  explicit AnthropicStreamReader(std::string_view stream) { TakeAll(stream); }

  // The message; a block's input as its client would see it.
  const boost::json::object& message() const { return message_; }
  // Types of the events in order, of a delta that of its delta; "ping" as it is.
  const std::vector<std::string>& types() const { return types_; }
  bool complete() const { return ended_; }
  const std::optional<boost::json::object>& error() const { return error_; }

 private:
  void TakeAll(std::string_view stream) {
    while (!stream.empty()) {
      const size_t end = stream.find("\n\n");
      ASSERT_NE(end, std::string_view::npos) << "an event without its end: " << stream;
      Take(stream.substr(0, end));
      stream.remove_prefix(end + 2);
    }
  }

  void Take(std::string_view event) {
    constexpr std::string_view kEvent = "event: ", kData = "\ndata: ";
    const size_t data_at = event.find(kData);
    ASSERT_TRUE(event.starts_with(kEvent) && data_at != std::string_view::npos) << event;
    const std::string_view name = event.substr(kEvent.size(), data_at - kEvent.size());
    const boost::json::object data = boost::json::parse(event.substr(data_at + kData.size())).as_object();
    ASSERT_EQ(data.begin()->key(), "type");
    ASSERT_EQ(std::string_view(data.at("type").as_string()), name);
    EXPECT_FALSE(ended_ || error_) << "an event behind the last: " << event;
    types_.emplace_back(name);
    if (name == "ping") return;
    if (name == "error") {
      error_ = data;
    } else if (name == "message_start") {
      EXPECT_TRUE(message_.empty());
      message_ = data.at("message").as_object();
      EXPECT_TRUE(message_.at("content").as_array().empty() && message_.at("stop_reason").is_null());
    } else {
      ASSERT_FALSE(message_.empty()) << "the message begins with message_start, not " << event;
      name == "message_delta" || name == "message_stop" ? TakeEnd(name, data) : TakeOfBlock(name, data);
    }
  }

  void TakeOfBlock(std::string_view name, const boost::json::object& data) {
    boost::json::array& content = message_["content"].as_array();
    EXPECT_FALSE(has_end_) << "a block behind message_delta";
    if (name == "content_block_start") {
      EXPECT_FALSE(open_) << "a block begins in another";
      open_ = true;
      input_.clear();
      ASSERT_EQ(data.at("index").as_int64(), static_cast<int64_t>(content.size()));
      content.push_back(data.at("content_block"));
      return;
    }
    ASSERT_TRUE(open_) << boost::json::serialize(data);
    ASSERT_EQ(data.at("index").as_int64() + 1, static_cast<int64_t>(content.size()));
    boost::json::object& block = content.back().as_object();
    if (name == "content_block_delta") return AddDelta(data.at("delta").as_object(), block);
    ASSERT_EQ(name, "content_block_stop");
    open_ = false;
    if (block.at("type") == "tool_use" && !input_.empty()) {
      boost::system::error_code not_json;
      block["input"] = boost::json::parse(input_, not_json);
      if (not_json) block["input"] = input_;  // of a call that was cut off
    }
  }

  void AddDelta(const boost::json::object& delta, boost::json::object& block) {
    const std::string type(delta.at("type").as_string());
    types_.back() = type;
    const auto add = [&](const char* block_type, const char* field) {
      EXPECT_EQ(std::string(block.at("type").as_string()), block_type) << "of a " << type;
      block[field] = std::string(block.at(field).as_string()) + std::string(delta.at(field).as_string());
    };
    if (type == "text_delta") {
      add("text", "text");
    } else if (type == "thinking_delta") {
      EXPECT_TRUE(block.at("signature").as_string().empty()) << "the signature is last";
      add("thinking", "thinking");
    } else if (type == "signature_delta") {
      EXPECT_TRUE(block.at("signature").as_string().empty()) << "a second signature";
      EXPECT_FALSE(delta.at("signature").as_string().empty());
      add("thinking", "signature");
    } else {
      ASSERT_EQ(type, "input_json_delta");
      EXPECT_EQ(block.at("type"), "tool_use");
      input_ += delta.at("partial_json").as_string();
    }
  }

  void TakeEnd(std::string_view name, const boost::json::object& data) {
    EXPECT_FALSE(open_) << "the message ends in a block";
    if (name == "message_stop") {
      EXPECT_TRUE(has_end_);
      ended_ = true;
      return;
    }
    EXPECT_FALSE(std::exchange(has_end_, true)) << "a second message_delta";
    for (const auto& [key, value] : data.at("delta").as_object()) message_[key] = value;
    boost::json::object& usage = message_["usage"].as_object();
    for (const auto& [key, value] : data.at("usage").as_object()) usage[key] = value;
  }

  boost::json::object message_;
  std::vector<std::string> types_;
  bool open_ = false;
  std::string input_;  // of the open block
  bool has_end_ = false;
  bool ended_ = false;
  std::optional<boost::json::object> error_;
};

// A message without what differs between two answers that say the same: ids and signatures, which must be
// there.
inline boost::json::object WithoutIds(boost::json::object message) {
  EXPECT_TRUE(message.at("id").as_string().starts_with("msg_"));
  message.erase("id");
  for (boost::json::value& block : message["content"].as_array()) {
    for (const char* key : {"id", "signature"}) {
      if (!block.as_object().contains(key)) continue;
      EXPECT_FALSE(block.at(key).as_string().empty());
      block.as_object().erase(key);
    }
  }
  return message;
}

}  // namespace millrace::api
