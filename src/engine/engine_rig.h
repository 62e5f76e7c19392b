#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/recording_sink.h"
#include "engine/scripted_model.h"

// For the tests of this folder: an engine over a scripted model.

namespace millrace::engine {

inline constexpr TokenId kEos = 1;  // ScriptedModelOptions' default

// A greedy request.
inline GenerationRequest Request(std::vector<TokenId> prompt, int64_t max_tokens = 100) {
  GenerationRequest request;
  request.request_id = "test";
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  return request;
}

// An engine over a scripted model, and the model to look into.
struct Rig {
  explicit Rig(ScriptedModelOptions model_options = {}, EngineOptions options = {}) {
    auto owned = std::make_unique<ScriptedModel>(model_options);
    model = owned.get();
    engine = std::make_unique<Engine>(std::move(owned), options);
  }
  ~Rig() {
    model->ReleaseSteps();  // or the engine could not stop
  }

  struct Started {
    SeqId id;
    std::shared_ptr<RecordingSink> sink;
  };
  Started Start(GenerationRequest request) {
    auto sink = std::make_shared<RecordingSink>();
    const Result<SeqId> id = engine->Submit(std::move(request), sink);
    EXPECT_TRUE(id.ok()) << id.error().message();
    return {id.ok() ? *id : SeqId{}, sink};
  }

  // Blocks every step; returns when the first is blocked with `request` in it.
  Started StartHeld(GenerationRequest request) {
    model->HoldSteps();
    Started started = Start(std::move(request));
    EXPECT_TRUE(model->WaitUntilHeld());
    return started;
  }

  // Lets `n` steps run and waits until the next one is blocked.
  void RunSteps(int n) {
    for (int i = 0; i < n; ++i) {
      model->AllowSteps(1);
      ASSERT_TRUE(model->WaitUntilHeld());
    }
  }

  ScriptedModel* model;  // outlived by the engine
  std::unique_ptr<Engine> engine;
};

// Waits for the end.
inline FinishReason Reason(const std::shared_ptr<RecordingSink>& sink) {
  const auto finish = sink->WaitForFinish();
  EXPECT_TRUE(finish.has_value());
  EXPECT_EQ(sink->finishes(), 1);
  return finish ? finish->reason : FinishReason::kError;
}

}  // namespace millrace::engine
