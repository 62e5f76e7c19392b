#include "api/responses_prepare.h"

#include <chrono>
#include <utility>

#include "api/random_id.h"
#include "api/responses_decode.h"
#include "api/responses_format.h"

namespace millrace::api {

std::variant<PreparedGeneration, ApiError> PrepareResponses(const ServedModel& model,
                                                            const RequestOrigin& origin,
                                                            std::string_view body) {
  using std::chrono::system_clock;
  auto decoded = DecodeResponsesRequest(body, model.chat_defaults, model.encoder.model());
  if (ApiError* const error = std::get_if<ApiError>(&decoded)) return std::move(*error);
  ResponsesRequest& request = std::get<ResponsesRequest>(decoded);
  const OutputOptions& output = request.chat.output;
  ResponsesHead head;
  head.id = "resp_" + RandomHexId();
  head.model = output.model.empty() ? model.names.front() : output.model;
  head.created =
      std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count();
  head.echo = std::move(request.echo);
  head.custom_tools = std::move(request.custom_tools);
  head.seal_reasoning = request.seal_reasoning;
  auto prepared =
      PrepareChatRequest(model, origin, std::move(request.chat), MakeResponsesFormat(std::move(head)));
  ApiError* const error = std::get_if<ApiError>(&prepared);
  if (error != nullptr && error->param == "messages") error->param = "input";
  return prepared;
}

}  // namespace millrace::api
