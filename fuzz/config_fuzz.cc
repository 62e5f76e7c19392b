#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/hf_config.h"

// Any text gives a config or an error; a config that was accepted is written and read back unchanged.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::formats::ModelConfig;
  using millrace::formats::ParseHfConfig;
  millrace::Result<ModelConfig> config = ParseHfConfig({reinterpret_cast<const char*>(data), size});
  if (!config.ok()) {
    MILLRACE_CHECK(!config.error().message().empty(), "an error without a message");
    return 0;
  }
  config->unknown_keys.clear();  // the writer leaves them out
  const auto again = ParseHfConfig(millrace::formats::WriteHfConfig(*config));
  MILLRACE_CHECK(again.ok() && *again == *config, "a config does not survive writing and reading");
  return 0;
}
