#include "api/work_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <list>
#include <memory>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace millrace::api {
namespace {

class WorkQueueTest : public ::testing::Test {
 protected:
  // Occupies the queue's only thread until Release.
  void Hold() {
    ASSERT_TRUE(queue_.Add([this] {
      held_.release();
      go_on_.acquire();
    }));
    held_.acquire();
  }
  void Release() { go_on_.release(); }
  // Waits for all that was added before.
  void Finish() {
    std::promise<void> done;
    while (!queue_.Add([&] { done.set_value(); })) std::this_thread::yield();
    done.get_future().wait();
  }

  std::binary_semaphore held_{0}, go_on_{0};
  std::vector<int> order_;
  WorkQueue queue_{1, 2};  // last: its thread uses the rest
};

TEST_F(WorkQueueTest, RunsTasksInOrder) {
  Hold();
  EXPECT_TRUE(queue_.Add([this] { order_.push_back(1); }));
  EXPECT_TRUE(queue_.Add([this] { order_.push_back(2); }));
  Release();
  Finish();
  EXPECT_EQ(order_, (std::vector<int>{1, 2}));
}

TEST_F(WorkQueueTest, RefusesMoreThanMayWait) {
  Hold();
  EXPECT_TRUE(queue_.Add([this] { order_.push_back(1); }));
  EXPECT_TRUE(queue_.Add([this] { order_.push_back(2); }));
  EXPECT_FALSE(queue_.Add([this] { order_.push_back(3); }));
  Release();
  Finish();
  EXPECT_EQ(order_, (std::vector<int>{1, 2}));
}

TEST_F(WorkQueueTest, ARemovedTaskIsDroppedAtOnceAndLeavesItsPlace) {
  Hold();
  auto memory = std::make_shared<int>();
  const std::weak_ptr<int> watch = memory;
  const auto ticket = queue_.Add([this, held = std::move(memory)] { order_.push_back(*held); });
  ASSERT_TRUE(ticket);
  EXPECT_TRUE(queue_.Add([this] { order_.push_back(2); }));
  queue_.Remove(*ticket);
  EXPECT_TRUE(watch.expired());
  EXPECT_TRUE(queue_.Add([this] { order_.push_back(3); }));
  Release();
  Finish();
  queue_.Remove(*ticket);
  EXPECT_EQ(order_, (std::vector<int>{2, 3}));
}

// Starts on one of two threads and stays until it is let go.
class HeldTask {
 public:
  HeldTask(WorkQueue& queue, uint64_t cost) {
    queue.Add(
        [this] {
          began_.set_value();
          go_on_.get_future().wait();
        },
        cost);
  }
  bool Began(std::chrono::milliseconds wait) {
    return began_future_.wait_for(wait) == std::future_status::ready;
  }
  void Release() { go_on_.set_value(); }

 private:
  std::promise<void> began_, go_on_;
  std::future<void> began_future_ = began_.get_future();
};

TEST(WorkQueueCosts, CheapTasksPassExpensiveOnesThatWaitForEachOther) {
  constexpr auto kSoon = std::chrono::seconds(10);
  constexpr auto kNot = std::chrono::milliseconds(50);
  std::list<HeldTask> tasks;  // the queue's threads end before they go
  WorkQueue queue(2, 16, /*cheap_cost=*/10);
  HeldTask& first = tasks.emplace_back(queue, 90);
  EXPECT_TRUE(first.Began(kSoon));
  HeldTask& second = tasks.emplace_back(queue, 11);
  EXPECT_FALSE(second.Began(kNot));
  HeldTask& cheap = tasks.emplace_back(queue, 10);
  EXPECT_TRUE(cheap.Began(kSoon));
  HeldTask& next_cheap = tasks.emplace_back(queue, 0);
  first.Release();
  EXPECT_TRUE(second.Began(kSoon));  // before the cheap one, which came later
  EXPECT_FALSE(next_cheap.Began(kNot));
  cheap.Release();
  EXPECT_TRUE(next_cheap.Began(kSoon));
  second.Release();
  HeldTask& last = tasks.emplace_back(queue, 1);
  EXPECT_TRUE(last.Began(kSoon));  // the first thread takes them, too
  last.Release();
  next_cheap.Release();
}

}  // namespace
}  // namespace millrace::api
