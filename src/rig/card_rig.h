#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/planned_memory.h"
#include "base/result.h"
#include "formats/hf_config.h"

namespace millrace::rig {

enum class EngramPlacement : uint8_t {
  kHost,    // the n-gram tables stay in the host's memory (or on its drive)
  kDevice,  // their rows are divided over all cards
};

// Cards, or nodes, that share one model.
struct CardRigOptions {
  std::vector<uint64_t> device_bytes = {};  // at least one
  // Ranks that divide the dense tensors; a divisor of the number of cards. Cards beyond hold the same parts
  // again. nullopt: all cards if the model's heads, groups and rows can be divided so, else 1.
  std::optional<int> tp = std::nullopt;
  // Groups of cards that divide the experts among them, uneven as their memory is; a divisor of the number of
  // cards. The cards of one group divide the rows of each of its experts. nullopt: all cards.
  std::optional<int> ep = std::nullopt;
  EngramPlacement engram = EngramPlacement::kHost;
  bool draft = true;   // load the draft head
  bool vision = true;  // load the vision tower
  // Of each card, for what is no tensor: the driver's context, libraries, the buffers of collectives.
  uint64_t reserve_bytes = uint64_t{1} << 30;
};

struct CardPlan {
  uint64_t capacity_bytes = 0;
  int64_t first_expert = 0;  // of every layer
  int64_t n_experts = 0;
  std::vector<PlannedMemory> lines;

  uint64_t weight_bytes() const;
  uint64_t planned_bytes() const;
  // What is left; negative: so much is missing.
  int64_t headroom_bytes() const {
    return static_cast<int64_t>(capacity_bytes) - static_cast<int64_t>(planned_bytes());
  }
};

struct CardRigPlan {
  int tp = 1;
  int ep = 1;
  std::vector<CardPlan> cards;
  std::vector<PlannedMemory> host;  // what stays off the cards
  uint64_t expert_bytes = 0;        // of one expert index over all layers

  // Whose headroom is the least, which every other card waits for; the first of equals.
  size_t fullest() const;
  // The least headroom; negative when the weights do not fit.
  int64_t headroom_bytes() const { return cards[fullest()].headroom_bytes(); }
  // Adds what every card holds alike, before its reserve: the pages, whose latents and index keys have one
  // head, states, scratch. That changes no division of the experts.
  void HoldOnEachCard(const std::vector<PlannedMemory>& lines);
};

// Experts are divided so that the least headroom is as large as can be, and among such divisions as evenly as
// can be, because a step waits for the card with the most. kInvalidArgument, naming flag, value and what is
// possible, for a tp or ep that does not divide the model or the cards, and for a reserve that fills one.
Result<CardRigPlan> PlanCardRig(const formats::ModelConfig& config, const CardRigOptions& options);

// How many of `n_experts` each group gets when each expert takes `expert_bytes` of each card of its group.
// `free_bytes` by card, `cards_of_group` consecutive ones form a group. Every expert has one group, whether
// it fits or not.
std::vector<int64_t> DivideExperts(std::span<const int64_t> free_bytes, int64_t cards_of_group,
                                   int64_t n_experts, uint64_t expert_bytes);

}  // namespace millrace::rig
