#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "engine/token_constraint.h"

namespace millrace::engine {

// What a ForcedPrefixConstraint does to a sequence.
struct ForcedPrefix {
  // Generating this token begins the forced run (the end of the reasoning); nullopt: the run comes first.
  std::optional<TokenId> after = std::nullopt;
  // Cannot be chosen before the run has begun (the end token, which would leave the run out); may be empty.
  std::vector<TokenId> not_before = {};
  // The run. Behind it the sequence is free; an empty run forces nothing.
  std::vector<TokenId> ids = {};
};

// Waits for a token, forces a run of tokens, and then lets the sequence go: how an answer is made to begin
// with a call (chat-encoding specification, section 12).
class ForcedPrefixConstraint final : public TokenConstraint {
 public:
  explicit ForcedPrefixConstraint(ForcedPrefix prefix);

  std::unique_ptr<TokenConstraint> Clone() const override;
  void OnToken(TokenId token) override;
  NextToken Next() override;

 private:
  explicit ForcedPrefixConstraint(std::shared_ptr<const ForcedPrefix> prefix);

  std::shared_ptr<const ForcedPrefix> prefix_;
  bool waiting_;
  size_t forced_ = 0;  // of prefix_->ids, generated
};

}  // namespace millrace::engine
