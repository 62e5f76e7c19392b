#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/api_error.h"
#include "api/dialect.h"
#include "api/exchange.h"
#include "base/byte_budget.h"

namespace millrace::api {

// Where the memory of a connection's queued output comes from: first of what is its alone, then of what all
// connections share. Both nullptr: nothing is reserved.
struct OutputRoom {
  size_t max_stream_bytes = 0;  // may wait of a stream beside the largest single write
  std::shared_ptr<ByteBudget> own = nullptr;
  std::shared_ptr<ByteBudget> shared = nullptr;
  size_t own_bytes = 0;  // the budgets' limits
  size_t shared_bytes = 0;
  size_t last_word_bytes = 0;  // of the connection's own, kept for what a stream without room ends with
};

// The exchange of the HTTP server: collects what the handler says until the connection takes it. Knows no
// socket and outlives its connection for as long as a handler or an engine's sink holds it.
// One thread, but for Post.
class BufferedExchange final : public Exchange {
 public:
  // Queues a task on the exchange's thread; any thread may call it.
  using Poster = std::function<void(std::function<void()>)>;

  // What waits, and what was taken last, is reserved of `room`. A whole answer that finds none is replaced by
  // an error in `dialect`; a stream that finds none is refused the write, or is too slow when its client has
  // left as much unread as its own part holds.
  BufferedExchange(Poster poster, OutputRoom room, Dialect dialect = Dialect::kOpenAi)
      : poster_(std::move(poster)), room_(std::move(room)), dialect_(dialect) {}

  void Post(std::function<void()> task) override { poster_(std::move(task)); }
  SentAnswer Send(HttpResponse response) override;
  void BeginStream(HttpResponse head, std::function<std::string()> idle_filler) override;
  bool Write(std::string_view bytes) override;
  void EndStream(StreamEnd end) override;
  void SetOnGone(std::function<void()> on_gone) override;
  bool gone() const override { return gone_; }

  // The connection's side. `wake` is called after every change that the connection wants to see.
  void SetWake(std::function<void()> wake) { wake_ = std::move(wake); }
  // The client disconnected, or the answer cannot be delivered.
  void MarkGone();
  // The same, because the client does not read.
  void MarkTooSlow();
  // The answer was delivered: from now on nobody can be gone.
  void MarkDelivered();

  // The whole answer or the head of a stream, once.
  std::optional<HttpResponse> TakeHead();
  bool streaming() const { return streaming_; }
  // The output that waits; its memory stays reserved until the next is taken.
  std::string TakeOutput() {
    taken_memory_ = std::exchange(output_memory_, {});
    return std::exchange(output_, {});
  }
  bool has_output() const { return !output_.empty() || head_.has_value(); }
  bool ended() const { return ended_; }
  bool failed() const { return failed_; }
  bool too_slow() const { return too_slow_; }
  // What to send because nothing was written for long; may be empty.
  std::string IdleFiller() { return idle_filler_ && !ended_ ? idle_filler_() : std::string(); }

 private:
  struct OutputMemory {
    ByteReservation own, shared;
  };

  void Wake();
  // False when what waits for this client and others leaves no room for `bytes` more. `kept`: of the
  // connection's own, not to be touched.
  bool ReserveOutput(size_t bytes, size_t kept);
  // What to say instead of an answer of so many bytes, for which there is no room.
  ApiError Refusal(size_t bytes) const;

  Poster poster_;
  OutputRoom room_;
  Dialect dialect_;
  std::function<void()> wake_;
  std::function<void()> on_gone_;
  std::optional<HttpResponse> head_;
  std::function<std::string()> idle_filler_;
  std::string output_;
  OutputMemory output_memory_;  // of head_'s body and output_
  OutputMemory taken_memory_;   // of what TakeHead or TakeOutput gave last
  size_t largest_write_ = 0;
  bool answered_ = false;
  bool refused_write_ = false;
  bool streaming_ = false;
  bool ended_ = false;
  bool failed_ = false;
  bool gone_ = false;
  bool too_slow_ = false;
};

}  // namespace millrace::api
