#include "api/work_queue.h"

#include <gtest/gtest.h>

#include <future>
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

}  // namespace
}  // namespace millrace::api
