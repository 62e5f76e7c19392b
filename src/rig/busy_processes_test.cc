#include "rig/busy_processes.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace millrace::rig {
namespace {

// Processor time of all children that have ended.
double ChildrenSeconds() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) + 1e-6 * static_cast<double>(usage.ru_utime.tv_usec);
}

TEST(BusyProcesses, SpinOnlyWhileAskedToAndLeaveNothingBehind) {
  const double before = ChildrenSeconds();
  {
    const BusyProcesses idle(2);
    ASSERT_EQ(idle.count(), 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(ChildrenSeconds() - before, 0.04);
  const double idle = ChildrenSeconds();
  {
    const BusyProcesses busy(2);
    busy.Run();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    busy.Stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_GT(ChildrenSeconds() - idle, 0.02);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace millrace::rig
