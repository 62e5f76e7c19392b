#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "api/http_message.h"
#include "api/request_record.h"

namespace millrace::api {

enum class StreamEnd : uint8_t {
  kWhole,
  kFailed,  // the connection is closed after what is queued, so that the client sees a cut stream
};

// What went out for a whole answer.
struct SentAnswer {
  int status = 0;
  uint64_t body_bytes = 0;
  std::string_view error_code = {};  // ApiError::code of what was sent instead; empty: it was sent as it is
};

// One request's answer, as a handler sees it: apart from sockets, so that handlers run in tests without any.
//
// A handler answers either with Send, or with BeginStream, any number of Write, and EndStream. Every method
// but Post is called on the exchange's own thread (the server's I/O thread), where nothing may block or work
// for long. Once the client is gone, whatever is sent is dropped.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Runs `task` on the exchange's thread, later. Any thread. Dropped when the server has stopped.
  virtual void Post(std::function<void()> task) = 0;

  // The whole answer; when the server has no memory for it (the response brings none of its own), an error
  // that says so is sent instead.
  virtual SentAnswer Send(HttpResponse response) = 0;

  // Sends the head of an answer of unknown length. Whenever nothing was written for the server's keep-alive
  // interval it asks `idle_filler`, until EndStream, and sends what it says: whatever keeps that
  // client waiting.
  virtual void BeginStream(HttpResponse head, std::function<std::string()> idle_filler) = 0;
  // Queues bytes and never waits. All that was queued since the last write to the socket leaves in one. A
  // client that reads too slowly for the server's output bound counts as gone. False: nothing of `bytes` is
  // queued, because the server has no memory for it now, which is not this client's fault; what is written
  // next may be a word of a few KiB that says so, and then EndStream.
  virtual bool Write(std::string_view bytes) = 0;
  virtual void EndStream(StreamEnd end) = 0;

  // Called once, as soon as the client is seen to be gone (also while nothing is being written) before the
  // answer's end; at once if it is gone already. Replaces the one set before.
  virtual void SetOnGone(std::function<void()> on_gone) = 0;
  virtual bool gone() const = 0;

  // For the request's line in the log: whoever learns a fact writes it here before the answer's end, on the
  // exchange's thread.
  RequestRecord& record() { return record_; }

 private:
  RequestRecord record_;
};

}  // namespace millrace::api
