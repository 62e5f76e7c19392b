#include "api/buffered_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/api_error.h"
#include "api/error_response.h"
#include "base/check.h"
#include "base/log.h"

namespace millrace::api {

void BufferedExchange::Wake() {
  if (wake_) wake_();
}

bool BufferedExchange::ReserveOutput(size_t bytes, size_t kept) {
  if (!room_.shared) return true;
  // Only this thread reserves of the connection's own, so what is free of it stays free.
  const size_t taken = std::min(room_.own_bytes, room_.own->reserved_bytes() + kept);
  const size_t own_bytes = std::min(bytes, room_.own_bytes - taken);
  std::optional<ByteReservation> shared = room_.shared->Reserve(bytes - own_bytes);
  if (!shared) return false;
  std::optional<ByteReservation> own = room_.own->Reserve(own_bytes);
  MILLRACE_CHECK(own, "a connection's own output memory was reserved by another thread");
  output_memory_.own.Merge(*std::move(own));
  output_memory_.shared.Merge(*std::move(shared));
  return true;
}

ApiError BufferedExchange::Refusal(size_t bytes) const {
  const size_t most = room_.own_bytes + room_.shared_bytes;
  return bytes > most
             ? ApiError{ApiErrorKind::kBodyTooLarge,
                        fmt::format(
                            "The answer has {} bytes, more than the {} that this server can hold for one: "
                            "ask for less, or have it started with a larger --max-unread-total.",
                            bytes, most),
                        ""}
             : ApiError{
                   ApiErrorKind::kOverloaded,
                   fmt::format("The answer has {} bytes, and other clients' unread answers fill the memory "
                               "set aside for them (--max-unread-total); retry shortly.",
                               bytes),
                   ""};
}

SentAnswer BufferedExchange::Send(HttpResponse response) {
  MILLRACE_CHECK(!answered_, "a handler answered one request twice");
  answered_ = true;
  ended_ = true;
  SentAnswer sent{response.status, response.body.size()};
  if (gone_) return sent;
  const bool has_memory = response.body_memory.bytes() >= response.body.size();
  if (!has_memory && !ReserveOutput(response.body.size(), /*kept=*/0)) {
    const ApiError error = Refusal(response.body.size());
    spdlog::warn("answered with an error: {}", error.message);
    response = ErrorResponse(error, std::move(response.headers), {dialect_, {}});
    (void)ReserveOutput(response.body.size(), /*kept=*/0);  // small: of the connection's own
    sent = {response.status, response.body.size(), error.code()};
  }
  head_ = std::move(response);
  Wake();
  return sent;
}

void BufferedExchange::BeginStream(HttpResponse head, std::function<std::string()> idle_filler) {
  MILLRACE_CHECK(!answered_, "a handler answered one request twice");
  answered_ = true;
  streaming_ = true;
  if (gone_) return;
  head_ = std::move(head);
  idle_filler_ = std::move(idle_filler);
  Wake();
}

bool BufferedExchange::Write(std::string_view bytes) {
  MILLRACE_CHECK(streaming_ && !ended_, "Write outside BeginStream and EndStream");
  if (gone_) return true;
  // One write may be larger than the bound (a whole answer repeated at its end): no reader is to blame for
  // it.
  largest_write_ = std::max(largest_write_, bytes.size());
  if (output_.size() + bytes.size() > room_.max_stream_bytes + largest_write_) {
    MarkTooSlow();
    return true;
  }
  if (!ReserveOutput(bytes.size(), refused_write_ ? 0 : room_.last_word_bytes)) {
    const bool to_blame = output_.size() + room_.last_word_bytes >= room_.own_bytes;
    if (to_blame) MarkTooSlow();
    refused_write_ = !to_blame;
    return to_blame;
  }
  output_ += bytes;
  Wake();
  return true;
}

void BufferedExchange::EndStream(StreamEnd end) {
  MILLRACE_CHECK(streaming_ && !ended_, "EndStream without BeginStream, or twice");
  ended_ = true;
  failed_ = end == StreamEnd::kFailed;
  Wake();
}

void BufferedExchange::SetOnGone(std::function<void()> on_gone) {
  if (gone_) return on_gone();
  on_gone_ = std::move(on_gone);
}

void BufferedExchange::MarkGone() {
  if (gone_) return;
  gone_ = true;
  output_.clear();
  output_memory_ = {};
  head_.reset();
  Wake();
  if (auto on_gone = std::exchange(on_gone_, nullptr); on_gone && !ended_) on_gone();
}

void BufferedExchange::MarkTooSlow() {
  too_slow_ = true;
  MarkGone();
}

void BufferedExchange::MarkDelivered() {
  wake_ = nullptr;
  on_gone_ = nullptr;
  // The connection may go on while a handler still holds the exchange.
  taken_memory_ = {};
}

std::optional<HttpResponse> BufferedExchange::TakeHead() {
  // A stream's output may wait behind its head, and stays reserved.
  if (head_ && !streaming_) taken_memory_ = std::exchange(output_memory_, {});
  return std::exchange(head_, std::nullopt);
}

}  // namespace millrace::api
