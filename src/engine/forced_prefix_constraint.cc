#include "engine/forced_prefix_constraint.h"

#include <span>
#include <utility>

namespace millrace::engine {

ForcedPrefixConstraint::ForcedPrefixConstraint(ForcedPrefix prefix)
    : ForcedPrefixConstraint(std::make_shared<const ForcedPrefix>(std::move(prefix))) {}

ForcedPrefixConstraint::ForcedPrefixConstraint(std::shared_ptr<const ForcedPrefix> prefix)
    : prefix_(std::move(prefix)), waiting_(prefix_->after.has_value()) {}

std::unique_ptr<TokenConstraint> ForcedPrefixConstraint::Clone() const {
  return std::unique_ptr<TokenConstraint>(new ForcedPrefixConstraint(prefix_));
}

void ForcedPrefixConstraint::OnToken(TokenId token) {
  if (waiting_) {
    waiting_ = token != prefix_->after;
  } else if (forced_ < prefix_->ids.size()) {
    ++forced_;
  }
}

NextToken ForcedPrefixConstraint::Next() {
  if (waiting_) return AnyTokenBut{prefix_->not_before};
  if (forced_ < prefix_->ids.size()) return ForcedTokens{std::span(prefix_->ids).subspan(forced_)};
  return AnyToken{};
}

}  // namespace millrace::engine
