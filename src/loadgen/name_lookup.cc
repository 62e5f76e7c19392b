#include "loadgen/name_lookup.h"

#include <boost/asio/error.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <charconv>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace millrace::loadgen {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);

// What the thread that asks and the coroutine that waits share.
struct Asked {
  std::mutex mutex;
  asio::steady_timer* waiting = nullptr;  // guarded; null: nobody waits any more
  std::optional<NameLookup> found;        // guarded
};

// Wakes who waits, on the thread of its executor; the timer may be gone by then.
void Tell(const std::shared_ptr<Asked>& asked, NameLookup found) {
  const std::lock_guard lock(asked->mutex);
  if (asked->waiting == nullptr) return;
  asked->found = std::move(found);
  asio::post(asked->waiting->get_executor(), [asked] {
    const std::lock_guard woken(asked->mutex);
    if (asked->waiting != nullptr) asked->waiting->cancel();
  });
}

class Waiting {
 public:
  Waiting(const std::shared_ptr<Asked>& asked, asio::steady_timer& timer) : asked_(asked) {
    asked_->waiting = &timer;
  }
  ~Waiting() {
    const std::lock_guard lock(asked_->mutex);
    asked_->waiting = nullptr;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::shared_ptr<Asked> asked_;
};

std::optional<NameLookup> InNumbers(const std::string& host, const std::string& port) {
  error_code failure;
  const asio::ip::address address = asio::ip::make_address(host, failure);
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (failure || error != std::errc() || end != port.data() + port.size()) return std::nullopt;
  return NameLookup{.failure = {}, .endpoints = {tcp::endpoint(address, number)}};
}

}  // namespace

NameLookup SystemLookUp(const std::string& host, const std::string& port) {
  asio::io_context context(1);
  NameLookup found;
  for (const auto& entry : tcp::resolver(context).resolve(host, port, found.failure))
    found.endpoints.push_back(entry.endpoint());
  return found;
}

asio::awaitable<NameLookup> LookUp(const NameLookupFunction& function, const std::string& host,
                                   const std::string& port, std::chrono::steady_clock::time_point deadline) {
  if (std::optional<NameLookup> known = InNumbers(host, port)) co_return *std::move(known);
  const auto asked = std::make_shared<Asked>();
  asio::steady_timer timer(co_await asio::this_coro::executor, deadline);
  const Waiting waiting(asked, timer);
  std::thread([asked, function, host, port] { Tell(asked, function(host, port)); }).detach();
  co_await timer.async_wait(kTuple);
  const std::lock_guard lock(asked->mutex);
  if (asked->found) co_return *std::move(asked->found);
  co_return NameLookup{.failure = asio::error::timed_out, .endpoints = {}};
}

}  // namespace millrace::loadgen
