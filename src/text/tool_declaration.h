#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/chat_message.h"
#include "text/chat_model.h"
#include "text/ordered_json.h"

namespace millrace::text {

// Between namespace and name where a prompt shows both.
inline constexpr std::string_view kNamespaceSeparator = "::";

// A tool as the prompt declares it (chat encoding, section 7), from the content of the `function` object of
// the OpenAI form; other dialects build such an object first. `tool_namespace` is the tool's own "namespace"
// field, nullptr without one; it wins over one inside the function. For V4.1 the namespace joins the name and
// its description the function's; V4 knows no namespaces and leaves the function as it is.
// kInvalidArgument: not an object, no name, a malformed namespace, two different ones, or "::" left in a
// part.
Result<ToolDeclaration> DeclareTool(const OrderedJson& function, const OrderedJson* tool_namespace,
                                    ChatModel model);

// The name that the prompt shows for a replayed call, whose "namespace" field (nullptr without one) stands
// beside its name. A name without such a field is repeated as it is, whatever the model once wrote: refusing
// it would refuse every later request of that conversation. kInvalidArgument as above.
Result<std::string> WrittenCallName(std::string_view name, const OrderedJson* call_namespace,
                                    ChatModel model);

}  // namespace millrace::text
