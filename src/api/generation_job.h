#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/answer_format.h"
#include "api/answer_memory.h"
#include "api/answer_recorder.h"
#include "api/answer_remedies.h"
#include "api/dialect.h"
#include "api/exchange.h"
#include "api/generation.h"
#include "api/metrics.h"
#include "api/requests.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace millrace::api {

// How many tokens an answer may have, and what its end is called when it has them.
struct OutputLimit {
  int64_t tokens = 0;
  AnswerEnd::Kind at_limit = AnswerEnd::Kind::kLength;
  bool named = true;  // by the request
};

// A decoded and encoded request, ready for the engine.
struct PreparedGeneration {
  std::string request_id;
  Dialect dialect = Dialect::kOpenAi;         // of errors before the answer has begun
  std::string model;                          // as the client calls it
  std::vector<std::vector<TokenId>> prompts;  // each becomes `choices_per_prompt` sequences, in this order
  int choices_per_prompt = 1;
  engine::SamplingParams sampling;  // the seed of a prompt's first choice; the others count up from it
  std::vector<OutputLimit> limits;  // of each prompt, bounded by the context
  RequestFields fields;
  GenerationOptions text;
  std::optional<AnswerRecorder> recorder;  // of what is to be remembered
  bool stream = false;
  std::unique_ptr<AnswerFormat> format;
  HttpHeaders headers;  // of the answer
  std::chrono::steady_clock::time_point arrival;
  std::optional<std::chrono::steady_clock::time_point> deadline;  // of the answer's end
};

// What a job uses; all outlive it.
struct GenerationBackend {
  engine::Engine& engine;
  const text::Tokenizer& tokenizer;
  Metrics& metrics;
  AnswerBudget& answers;
};

// Submits the sequences of one request and answers its exchange as their tokens come: what is ready in one
// turn of the exchange's loop leaves in one write, or in several when it is much. What the answer may take of
// the budget at most is reserved before: where too little is left it is refused for now, where there is too
// little altogether for good; a limit that the request has not named is lowered until a quarter of the budget
// holds the answer. When the client is gone, or a sequence fails, all its sequences are cancelled. Call on
// the exchange's thread; the job lives until its last sequence has ended.
void StartGeneration(GenerationBackend backend, PreparedGeneration prepared,
                     std::shared_ptr<Exchange> exchange);

}  // namespace millrace::api
