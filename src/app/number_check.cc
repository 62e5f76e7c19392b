#include "app/number_check.h"

#include <fmt/format.h>

#include <string>

namespace millrace::app {

CLI::Validator Between(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) {
        double value = 0;
        const bool fits = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
        return fits ? std::string() : fmt::format("Value {} not in range {} to {}", text, low, high);
      },
      fmt::format("in [{} - {}]", low, high));
}

}  // namespace millrace::app
