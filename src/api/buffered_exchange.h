#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/exchange.h"
#include "base/byte_budget.h"

namespace millrace::api {

// The exchange of the HTTP server: collects what the handler says until the connection takes it. Knows no
// socket and outlives its connection for as long as a handler or an engine's sink holds it.
// One thread, but for Post.
class BufferedExchange final : public Exchange {
 public:
  // Queues a task on the exchange's thread; any thread may call it.
  using Poster = std::function<void(std::function<void()>)>;

  // `max_output_bytes`: how much may wait for the client beside the largest single write. What waits, and
  // what was taken last, is reserved of `outputs` (nullptr: of nothing).
  BufferedExchange(Poster poster, size_t max_output_bytes, std::shared_ptr<ByteBudget> outputs = nullptr)
      : poster_(std::move(poster)), max_output_bytes_(max_output_bytes), outputs_(std::move(outputs)) {}

  void Post(std::function<void()> task) override { poster_(std::move(task)); }
  void Send(HttpResponse response) override;
  void BeginStream(HttpResponse head, std::function<std::string()> idle_filler) override;
  void Write(std::string_view bytes) override;
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
    taken_memory_ = std::move(output_memory_);
    return std::exchange(output_, {});
  }
  bool has_output() const { return !output_.empty() || head_.has_value(); }
  bool ended() const { return ended_; }
  bool failed() const { return failed_; }
  bool too_slow() const { return too_slow_; }
  // What to send because nothing was written for long; may be empty.
  std::string IdleFiller() { return idle_filler_ && !ended_ ? idle_filler_() : std::string(); }

 private:
  void Wake();
  // False, and the client is gone, when all that waits for clients leaves no room for `bytes` more.
  bool ReserveOutput(size_t bytes);

  Poster poster_;
  size_t max_output_bytes_;
  std::shared_ptr<ByteBudget> outputs_;
  std::function<void()> wake_;
  std::function<void()> on_gone_;
  std::optional<HttpResponse> head_;
  std::function<std::string()> idle_filler_;
  std::string output_;
  ByteReservation output_memory_;  // of head_'s body and output_
  ByteReservation taken_memory_;   // of what TakeHead or TakeOutput gave last
  size_t largest_write_ = 0;
  bool answered_ = false;
  bool streaming_ = false;
  bool ended_ = false;
  bool failed_ = false;
  bool gone_ = false;
  bool too_slow_ = false;
};

}  // namespace millrace::api
