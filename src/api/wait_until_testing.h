#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

namespace millrace::api {

// Fails after 20 seconds, saying `what` never came.
inline void WaitUntil(const std::function<bool()>& holds, const char* what) {
  for (int i = 0; i < 4000; ++i) {
    if (holds()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  FAIL() << "never: " << what;
}

}  // namespace millrace::api
