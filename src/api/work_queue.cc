#include "api/work_queue.h"

#include <algorithm>
#include <utility>

namespace millrace::api {

WorkQueue::WorkQueue(int n_threads, size_t max_waiting, uint64_t cheap_cost)
    : max_waiting_(max_waiting), cheap_cost_(cheap_cost) {
  for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this, i] { Run(/*takes_all=*/i == 0); });
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  arrived_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::optional<WorkQueue::Ticket> WorkQueue::Add(std::function<void()> task, uint64_t cost) {
  Ticket ticket{};
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= max_waiting_) return std::nullopt;
    ticket = Ticket{next_ticket_++};
    tasks_.push_back({ticket, std::move(task), cost});
  }
  arrived_.notify_all();  // not every thread takes every task
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

std::optional<WorkQueue::Task> WorkQueue::Take(bool takes_all) {
  const auto next =
      std::ranges::find_if(tasks_, [&](const Task& task) { return takes_all || task.cost <= cheap_cost_; });
  if (next == tasks_.end()) return std::nullopt;
  Task task = std::move(*next);
  tasks_.erase(next);
  return task;
}

void WorkQueue::Run(bool takes_all) {
  while (true) {
    std::optional<Task> task;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [&] { return stop_ || (task = Take(takes_all)).has_value(); });
      if (stop_) return;
    }
    task->run();
  }
}

}  // namespace millrace::api
