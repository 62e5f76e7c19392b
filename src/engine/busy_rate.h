#pragma once

#include <cmath>

namespace millrace::engine {

// How much is done a second of work, of late: seconds without work do not count. One thread.
class BusyRate {
 public:
  // `amount` was done in `seconds` of work.
  void Add(double amount, double seconds) {
    const double keep = std::exp(-seconds / kMemorySeconds);
    amount_ = keep * amount_ + amount;
    seconds_ = keep * seconds_ + seconds;
  }

  // 0 before anything was done.
  double per_second() const { return seconds_ > 0 ? amount_ / seconds_ : 0; }

 private:
  // What is older counts for little.
  static constexpr double kMemorySeconds = 30;

  double amount_ = 0;
  double seconds_ = 0;
};

}  // namespace millrace::engine
