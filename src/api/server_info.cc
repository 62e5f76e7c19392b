#include "api/server_info.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace millrace::api {

namespace json = boost::json;

std::string ServerInfoJson(const ServerInfo& info, const ServedModel& model, bool ready) {
  json::object body;
  body["version"] = info.version;
  body["status"] = ready ? "ready" : "shutting down";
  body["model_path"] = info.model_path;
  body["served_model_name"] = model.names.front();
  body["served_model_names"] = json::array(model.names.begin(), model.names.end());
  body["max_model_len"] = model.max_model_len;
  body["context_length"] = model.max_model_len;
  body["max_running_requests"] = info.max_num_seqs;
  body["max_queued_requests"] = info.max_queue;
  body["vocab_size"] = model.vocab_size;
  body["tp_size"] = 1;
  body["pp_size"] = 1;
  body["dp_size"] = 1;
  return json::serialize(body);
}

std::string ModelInfoJson(const ServerInfo& info, const ServedModel& model) {
  json::object body;
  body["model_path"] = info.model_path;
  body["tokenizer_path"] = info.model_path;
  body["served_model_name"] = model.names.front();
  body["is_generation"] = true;
  body["has_image_understanding"] = false;
  body["has_audio_understanding"] = false;
  body["max_model_len"] = model.max_model_len;
  body["vocab_size"] = model.vocab_size;
  return json::serialize(body);
}

}  // namespace millrace::api
