#include "api/forced_call.h"

#include <fmt/format.h>

#include "engine/forced_prefix_constraint.h"
#include "text/prompt_pieces.h"
#include "text/tool_markup.h"

namespace millrace::api {

std::shared_ptr<const engine::TokenConstraint> ForceCall(const text::ChatEncoder& encoder,
                                                         const ToolChoice& choice, bool starts_in_reasoning) {
  using Kind = ToolChoice::Kind;
  if (choice.kind != Kind::kRequired && choice.kind != Kind::kNamed) return nullptr;
  const text::ControlIds& ids = encoder.control_ids();
  const text::ToolTags tags = text::TagsOf(encoder.model());
  text::PromptPieces opening;
  opening.AddText("\n\n<");
  opening.AddControl(ids.dsml);
  opening.AddText(fmt::format("{}>\n<", tags.calls));
  opening.AddControl(ids.dsml);
  opening.AddText(fmt::format("{} name=\"", tags.invoke));
  if (choice.kind == Kind::kNamed) opening.AddText(choice.name + "\">\n");

  engine::ForcedPrefix prefix;
  prefix.ids = opening.Encode(encoder.tokenizer());
  if (starts_in_reasoning) {
    prefix.after = ids.think_end;
    // Neither the end nor a call out of the middle of the reasoning, behind which `</think>` would not come.
    prefix.not_before = {ids.eos, ids.dsml};
  }
  return std::make_shared<const engine::ForcedPrefixConstraint>(std::move(prefix));
}

void CloseCalls(const text::ChatEncoder& encoder, std::vector<TokenId>& ids) {
  const bool on_new_line = !ids.empty() && encoder.tokenizer().TokenBytes(ids.back()).ends_with('\n');
  text::PromptPieces closing;
  closing.AddText(on_new_line ? "</" : "\n</");
  closing.AddControl(encoder.control_ids().dsml);
  closing.AddText(fmt::format("{}>", text::TagsOf(encoder.model()).calls));
  const std::vector<TokenId> added = closing.Encode(encoder.tokenizer());
  ids.insert(ids.end(), added.begin(), added.end());
}

}  // namespace millrace::api
