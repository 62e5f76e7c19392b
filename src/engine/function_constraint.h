#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/token_constraint.h"

namespace millrace::engine {

// A TokenConstraint for tests: a function of the tokens generated so far. What the function's answer views
// must outlive the constraint's sequence.
class FunctionConstraint final : public TokenConstraint {
 public:
  using Fn = std::function<NextToken(std::span<const TokenId> generated)>;

  explicit FunctionConstraint(Fn fn) : fn_(std::move(fn)) {}

  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<FunctionConstraint>(fn_);
  }
  void OnToken(TokenId token) override { generated_.push_back(token); }
  NextToken Next() override { return fn_(generated_); }

 private:
  Fn fn_;
  std::vector<TokenId> generated_;
};

}  // namespace millrace::engine
