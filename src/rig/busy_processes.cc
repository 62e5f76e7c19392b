#include "rig/busy_processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace millrace::rig {
namespace {

// Returns when the process stands still, or has ended.
void WaitForStop(pid_t process) {
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(process), &info, WSTOPPED | WEXITED | WNOWAIT);
}

}  // namespace

BusyProcesses::BusyProcesses(int count) {
  const pid_t parent = getpid();
  for (int i = 0; i < count; ++i) {
    const pid_t process = fork();
    if (process < 0) return;
    if (process > 0) {
      processes_.push_back(process);
      WaitForStop(process);  // lest it is asked to run before it stops
      continue;
    }
    // The child of a program with threads: nothing but system calls from here on.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    raise(SIGSTOP);
    while (true) asm volatile("" ::: "memory");
  }
}

BusyProcesses::~BusyProcesses() {
  for (const pid_t process : processes_) {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
}

void BusyProcesses::Run() const {
  for (const pid_t process : processes_) kill(process, SIGCONT);
}

void BusyProcesses::Stop() const {
  for (const pid_t process : processes_) {
    kill(process, SIGSTOP);
    WaitForStop(process);
  }
}

}  // namespace millrace::rig
