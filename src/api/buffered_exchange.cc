#include "api/buffered_exchange.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace millrace::api {

void BufferedExchange::Wake() {
  if (wake_) wake_();
}

bool BufferedExchange::ReserveOutput(size_t bytes) {
  if (!outputs_) return true;
  std::optional<ByteReservation> memory = outputs_->Reserve(bytes);
  if (!memory) {
    MarkTooSlow();
    return false;
  }
  output_memory_.Merge(*std::move(memory));
  return true;
}

void BufferedExchange::Send(HttpResponse response) {
  MILLRACE_CHECK(!answered_, "a handler answered one request twice");
  answered_ = true;
  ended_ = true;
  if (gone_) return;
  // Small answers are part of their connection: a probe is answered whatever others leave unread.
  constexpr size_t kSmallBytes = 16 << 10;
  if (response.body.size() > kSmallBytes && !ReserveOutput(response.body.size())) return;
  head_ = std::move(response);
  Wake();
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

void BufferedExchange::Write(std::string_view bytes) {
  MILLRACE_CHECK(streaming_ && !ended_, "Write outside BeginStream and EndStream");
  if (gone_) return;
  // One write may be larger than the bound (a whole answer repeated at its end): no reader is to blame for
  // it.
  largest_write_ = std::max(largest_write_, bytes.size());
  if (output_.size() + bytes.size() > max_output_bytes_ + largest_write_) return MarkTooSlow();
  if (!ReserveOutput(bytes.size())) return;
  output_ += bytes;
  Wake();
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
}

std::optional<HttpResponse> BufferedExchange::TakeHead() {
  // A stream's output may wait behind its head, and stays reserved.
  if (head_ && !streaming_) taken_memory_ = std::move(output_memory_);
  return std::exchange(head_, std::nullopt);
}

}  // namespace millrace::api
