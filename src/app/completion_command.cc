#include <fmt/format.h>

#include <memory>
#include <string>

#include "app/commands.h"
#include "app/completion_script.h"

namespace millrace::app {

void AddCompletionCommand(CLI::App& root, Invocation& invocation) {
  auto shell = std::make_shared<std::string>();
  CLI::App* const command =
      root.add_subcommand("completion", "Print a script that completes flags in a shell");
  command->add_option("shell", *shell, "bash, zsh or fish")->required();
  command->callback([shell, &root, &invocation] {
    invocation.run = [shell, &root] {
      const Result<std::string> script = CompletionScript(root, *shell);
      if (!script.ok()) return ReportStatus(script.error());
      fmt::print("{}", *script);
      return 0;
    };
  });
}

}  // namespace millrace::app
