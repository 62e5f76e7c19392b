// Thousands of short requests: what every account holds must not creep.

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "engine/recording_sink.h"
#include "support/counted_heap.h"

namespace millrace::engine {
namespace {

using ::millrace::testing::counted_heap;

std::map<std::string, uint64_t> LiveBytes(const MemoryLedger& ledger) {
  std::map<std::string, uint64_t> live;
  for (const MemoryAccount* account : ledger.accounts()) live[account->name()] += account->live_bytes();
  return live;
}

GenerationRequest ShortRequest(std::mt19937& random, int64_t vocab_size) {
  GenerationRequest request;
  request.request_id = "soak";
  const size_t tokens = 1 + random() % 40;
  for (size_t t = 0; t < tokens; ++t)
    request.prompt.push_back(static_cast<TokenId>(random() % static_cast<uint32_t>(vocab_size)));
  request.sampling.max_tokens = 1 + random() % 4;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = random() % 2 == 0 ? 0.0F : 1.0F;
  request.sampling.presence_penalty = random() % 4 == 0 ? 0.5F : 0.0F;
  return request;
}

// Sends `n` requests, eight at a time; every third is cancelled on the way. The engine is idle again after.
void RunRequests(Engine& engine, int n, std::mt19937& random) {
  for (int sent = 0; sent < n; sent += 8) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 8; ++i) {
      sinks.push_back(std::make_shared<RecordingSink>());
      const auto id = engine.Submit(ShortRequest(random, engine.vocab_size()), sinks.back());
      ASSERT_TRUE(id.ok()) << id.error().message();
      if (i % 3 == 0) engine.Cancel(*id);
    }
    for (const auto& sink : sinks) ASSERT_TRUE(sink->WaitForFinish().has_value());
  }
  // The engine lets go of a request after its sink has heard of the end.
  while (engine.stats().running > 0 || engine.stats().waiting > 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST(MemorySoak, TwoThousandShortRequestsLeaveEveryAccountFlat) {
  ASSERT_TRUE(SetUpLog("warning").ok());
  LoadOptions options;
  options.threads = 1;
  options.stepper.max_model_len = 256;
  options.stepper.max_num_seqs = 4;
  options.stepper.max_batch_tokens = 64;
  auto loaded = LoadStepModel(MILLRACE_SOURCE_DIR "/models/mini", options);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  MemoryLedger& ledger = *loaded->ledger;
  {
    Engine engine(std::move(loaded->model), {.max_num_seqs = 4, .max_queue = 16}, &ledger);
    std::mt19937 random(1);
    RunRequests(engine, 400, random);  // until whatever keeps finished work is full
    const std::map<std::string, uint64_t> warm = LiveBytes(ledger);
    const int64_t warm_heap = counted_heap.live_bytes;
    for (int hundreds = 0; hundreds < 20; ++hundreds) {
      RunRequests(engine, 100, random);
      for (const auto& [name, bytes] : LiveBytes(ledger)) EXPECT_EQ(bytes, warm.at(name)) << name;
      // Queues that a burst has made longer keep their blocks.
      EXPECT_LE(counted_heap.live_bytes, warm_heap + 16 * 1024) << "after " << 100 * (hundreds + 1);
    }
  }
  // Only the checkpoint's accounts are left.
  for (const auto& [name, bytes] : LiveBytes(ledger)) {
    const bool of_checkpoint =
        name.starts_with("weights, ") || name == "tensor index" || name == "n-gram hash";
    if (!of_checkpoint) {
      EXPECT_EQ(bytes, 0u) << name;
    }
  }
}

}  // namespace
}  // namespace millrace::engine
