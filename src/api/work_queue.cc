#include "api/work_queue.h"

#include <algorithm>
#include <utility>

namespace millrace::api {

WorkQueue::WorkQueue(int n_threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  arrived_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::optional<WorkQueue::Ticket> WorkQueue::Add(std::function<void()> task) {
  Ticket ticket{};
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= max_waiting_) return std::nullopt;
    ticket = Ticket{next_ticket_++};
    tasks_.push_back({ticket, std::move(task)});
  }
  arrived_.notify_one();
  return ticket;
}

void WorkQueue::Remove(Ticket ticket) {
  Task removed;  // destroyed outside the lock: it may hold much memory
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(tasks_, ticket, &Task::ticket);
  if (found == tasks_.end()) return;
  removed = std::move(*found);
  tasks_.erase(found);
}

void WorkQueue::Run() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (stop_) return;
      task = std::move(tasks_.front().run);
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace millrace::api
