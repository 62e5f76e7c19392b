#pragma once

#include <sys/types.h>

#include <vector>

namespace millrace::rig {

// Processes that only spin: neighbours who want as much of the processors as they are given. They stand still
// until they are asked to run, and end with this object or with the process that made it.
class BusyProcesses {
 public:
  explicit BusyProcesses(int count);
  ~BusyProcesses();
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

  // Fewer than asked for where the system refuses to make more.
  int count() const { return static_cast<int>(processes_.size()); }
  void Run() const;
  void Stop() const;  // returns when all stand still

 private:
  std::vector<pid_t> processes_;
};

}  // namespace millrace::rig
