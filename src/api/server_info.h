#pragma once

#include <string>

#include "api/prepare_generation.h"

// What gateways and routers ask a server about itself, under the names that vLLM and SGLang use.
namespace millrace::api {

struct ServerInfo {
  std::string version;
  std::string model_path;
  int max_num_seqs = 0;
  int max_queue = 0;
};

// SGLang's /get_server_info (and vLLM's /server_info): one process is one rank of everything.
std::string ServerInfoJson(const ServerInfo& info, const ServedModel& model, bool ready);

// SGLang's /get_model_info.
std::string ModelInfoJson(const ServerInfo& info, const ServedModel& model);

}  // namespace millrace::api
