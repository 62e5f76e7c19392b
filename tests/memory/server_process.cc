#include "memory/server_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>

#include "api/socket_client.h"
#include "base/units.h"

namespace millrace::testing {

ServerProcess::ServerProcess(std::vector<std::string> command) {
  int ends[2];
  if (pipe(ends) != 0) return;
  process_ = fork();
  if (process_ == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    std::vector<char*> raw;
    for (std::string& argument : command) raw.push_back(argument.data());
    raw.push_back(nullptr);
    execv(raw.front(), raw.data());
    _exit(5);
  }
  close(ends[1]);
  output_ = ends[0];
  std::string text;
  char byte = 0;
  while (read(output_, &byte, 1) == 1) {
    text += byte;
    if (byte != '\n') continue;
    const size_t address = text.find("http://");
    if (address != std::string::npos) {
      port_ = static_cast<uint16_t>(std::stoi(text.substr(text.find(':', address + 7) + 1)));
      break;
    }
    text.clear();
  }
  watcher_ = std::thread([this] { Watch(); });
}

ServerProcess::~ServerProcess() {
  stop_ = true;
  if (watcher_.joinable()) watcher_.join();
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  if (output_ >= 0) close(output_);
}

std::map<std::string, ServerProcess::Account> ServerProcess::Accounts() const {
  std::map<std::string, Account> accounts;
  const auto health = boost::json::parse(api::AskOnce(port_, "GET", "/health").body);
  for (const auto& [name, account] : health.at("memory").at("accounts").as_object()) {
    const auto bytes = [&](const char* key) { return account.at(key).to_number<uint64_t>(); };
    accounts[name] = {bytes("planned_bytes"), bytes("live_bytes"), bytes("peak_bytes")};
  }
  return accounts;
}

uint64_t ServerProcess::resident_bytes() const {
  std::ifstream status(fmt::format("/proc/{}/status", process_));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * kKiB;
  return 0;
}

void ServerProcess::Watch() {
  while (!stop_) {
    peak_ = std::max(peak_.load(), resident_bytes());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace millrace::testing
