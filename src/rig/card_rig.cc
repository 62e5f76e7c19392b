#include "rig/card_rig.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/units.h"
#include "model/catalogue.h"

namespace millrace::rig {
namespace {

using model::Category;
using model::Component;
using model::Split;

// Bytes of the checkpoint by how they are divided.
struct Parts {
  uint64_t expert = 0;        // one expert index over all layers
  uint64_t draft_expert = 0;  // the same over all draft stages
  uint64_t tables = 0;
  uint64_t dense_whole = 0, dense_divided = 0;
  uint64_t draft_whole = 0, draft_divided = 0;
  uint64_t vision = 0;
};

Parts CountParts(const formats::ModelConfig& config) {
  Parts parts;
  for (const model::TensorSpec& tensor : model::BuildCatalogue(config)) {
    const bool whole = tensor.split == Split::kReplicated;
    const bool draft = tensor.component == Component::kDraft;
    if (tensor.split == Split::kExpert) {
      if (tensor.expert == 0) (draft ? parts.draft_expert : parts.expert) += tensor.bytes();
    } else if (tensor.component == Component::kVision) {
      parts.vision += tensor.bytes();
    } else if (tensor.category == Category::kEngramTables) {
      parts.tables += tensor.bytes();
    } else if (draft) {
      (whole ? parts.draft_whole : parts.draft_divided) += tensor.bytes();
    } else {
      (whole ? parts.dense_whole : parts.dense_divided) += tensor.bytes();
    }
  }
  return parts;
}

uint64_t Share(uint64_t bytes, int64_t ranks) {
  return (bytes + static_cast<uint64_t>(ranks) - 1) / static_cast<uint64_t>(ranks);
}

bool DividesModel(const formats::ModelConfig& c, int64_t tp) {
  const int64_t shared_tiles = c.n_shared_experts * c.moe_intermediate_size / 32;
  return c.num_attention_heads % tp == 0 && c.o_groups % tp == 0 && c.index_n_heads % tp == 0 &&
         c.vocab_size % tp == 0 && shared_tiles % tp == 0;
}

Result<int> ChooseTp(const formats::ModelConfig& config, const CardRigOptions& options, int cards) {
  std::vector<int> possible;
  for (int tp = 1; tp <= cards; ++tp)
    if (cards % tp == 0 && DividesModel(config, tp)) possible.push_back(tp);
  if (!options.tp) return possible.back() == cards ? cards : 1;
  if (std::ranges::find(possible, *options.tp) != possible.end()) return *options.tp;
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--tp is {}; {} cards and {} heads in {} groups can be divided by {}", *options.tp,
                           cards, config.num_attention_heads, config.o_groups, fmt::join(possible, ", ")));
}

Result<int> ChooseEp(const formats::ModelConfig& config, const CardRigOptions& options, int cards) {
  std::vector<int> possible;
  for (int ep = 1; ep <= cards; ++ep) {
    const bool rows_divide = cards % ep == 0 && config.moe_intermediate_size / 32 % (cards / ep) == 0;
    if (rows_divide) possible.push_back(ep);
  }
  const int ep = options.ep.value_or(cards);
  if (std::ranges::find(possible, ep) != possible.end()) return ep;
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--ep is {}; {} cards and experts of {} blocks of 32 rows can be divided by {}",
                           ep, cards, config.moe_intermediate_size / 32, fmt::join(possible, ", ")));
}

// All that a card holds whatever experts it gets.
std::vector<PlannedMemory> FixedLines(const Parts& parts, const CardRigOptions& options, int tp) {
  const auto cards = static_cast<int64_t>(options.device_bytes.size());
  std::vector<PlannedMemory> lines = {
      {"weights, dense", parts.dense_whole + Share(parts.dense_divided, tp), "", true}};
  if (options.engram == EngramPlacement::kDevice && parts.tables > 0)
    lines.push_back({"weights, n-gram tables", Share(parts.tables, cards), "", true});
  if (options.draft && parts.draft_expert > 0)
    lines.push_back({"weights, draft head", parts.draft_whole + Share(parts.draft_divided, tp), "", true});
  if (options.vision && parts.vision > 0) lines.push_back({"weights, vision tower", parts.vision, "", true});
  lines.push_back({"reserve", options.reserve_bytes});
  return lines;
}

uint64_t Sum(const std::vector<PlannedMemory>& lines) {
  uint64_t sum = 0;
  for (const PlannedMemory& line : lines) sum += line.bytes;
  return sum;
}

}  // namespace

uint64_t CardPlan::weight_bytes() const {
  uint64_t sum = 0;
  for (const PlannedMemory& line : lines)
    if (line.mapped) sum += line.bytes;
  return sum;
}

uint64_t CardPlan::planned_bytes() const {
  return Sum(lines);
}

size_t CardRigPlan::fullest() const {
  const auto least = std::ranges::min_element(cards, {}, &CardPlan::headroom_bytes);
  return static_cast<size_t>(least - cards.begin());
}

void CardRigPlan::HoldOnEachCard(const std::vector<PlannedMemory>& lines) {
  for (CardPlan& card : cards) card.lines.insert(card.lines.end() - 1, lines.begin(), lines.end());
}

std::vector<int64_t> DivideExperts(std::span<const int64_t> free_bytes, int64_t cards_of_group,
                                   int64_t n_experts, uint64_t expert_bytes) {
  const auto unit = static_cast<int64_t>(expert_bytes);
  MILLRACE_CHECK(unit > 0 && cards_of_group > 0, "an expert of no bytes, or a group of no cards");
  std::vector<int64_t> room;  // of a group: its fullest card's
  for (size_t card = 0; card < free_bytes.size(); card += static_cast<size_t>(cards_of_group))
    room.push_back(std::ranges::min(free_bytes.subspan(card, static_cast<size_t>(cards_of_group))));

  // The most headroom that leaves room for all experts, and how many each group then takes. No division
  // leaves more than the fullest group has without any.
  const auto experts_at = [&](int64_t headroom) {
    std::vector<int64_t> counts;
    for (const int64_t bytes : room) counts.push_back((bytes - headroom) / unit);
    return counts;
  };
  const auto total_at = [&](int64_t headroom) {
    const std::vector<int64_t> counts = experts_at(headroom);
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  const int64_t fullest = std::ranges::min(room);
  int64_t low = fullest - n_experts * unit;  // any one group takes them all
  int64_t high = fullest + 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (total_at(middle) >= n_experts ? low : high) = middle;
  }
  std::vector<int64_t> counts = experts_at(low);
  for (int64_t surplus = total_at(low) - n_experts; surplus > 0; --surplus)
    --*std::ranges::max_element(counts);
  return counts;
}

Result<CardRigPlan> PlanCardRig(const formats::ModelConfig& config, const CardRigOptions& options) {
  const int cards = static_cast<int>(options.device_bytes.size());
  if (cards == 0) return Error(ErrorCode::kInvalidArgument, "no card is given; give --device BYTES for each");
  if (const uint64_t smallest = std::ranges::min(options.device_bytes); options.reserve_bytes >= smallest) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--device-reserve is {} and the smallest --device has {}: nothing is left for the "
                    "model; give larger cards or a smaller reserve",
                    HumanBytes(options.reserve_bytes), HumanBytes(smallest)));
  }
  CardRigPlan plan;
  MILLRACE_ASSIGN_OR_RETURN(plan.tp, ChooseTp(config, options, cards));
  MILLRACE_ASSIGN_OR_RETURN(plan.ep, ChooseEp(config, options, cards));
  const Parts parts = CountParts(config);
  plan.expert_bytes = parts.expert;
  if (options.engram == EngramPlacement::kHost && parts.tables > 0)
    plan.host.push_back({"weights, n-gram tables", parts.tables, "", true});

  // Draft experts are few: even, and part of what a card holds in any case.
  const int cards_of_group = cards / plan.ep;
  const int64_t n_draft = options.draft && parts.draft_expert > 0 ? config.dspark_n_routed_experts : 0;
  std::vector<int64_t> free_bytes;
  for (int i = 0; i < cards; ++i) {
    CardPlan& card = plan.cards.emplace_back();
    card.capacity_bytes = options.device_bytes[static_cast<size_t>(i)];
    card.lines = FixedLines(parts, options, plan.tp);
    const int64_t group = i / cards_of_group;
    const int64_t draft_experts = (group + 1) * n_draft / plan.ep - group * n_draft / plan.ep;
    if (n_draft > 0) {
      const auto line = std::ranges::find(card.lines, "weights, draft head", &PlannedMemory::name);
      line->bytes += static_cast<uint64_t>(draft_experts) * Share(parts.draft_expert, cards_of_group);
    }
    free_bytes.push_back(card.headroom_bytes());
  }
  const uint64_t expert_bytes = Share(parts.expert, cards_of_group);
  const std::vector<int64_t> experts =
      DivideExperts(free_bytes, cards_of_group, config.n_routed_experts, expert_bytes);
  int64_t first = 0;
  for (int i = 0; i < cards; ++i) {
    CardPlan& card = plan.cards[static_cast<size_t>(i)];
    card.n_experts = experts[static_cast<size_t>(i / cards_of_group)];
    card.first_expert = first;
    card.lines.insert(card.lines.begin(), {"weights, routed experts",
                                           static_cast<uint64_t>(card.n_experts) * expert_bytes, "", true});
    if ((i + 1) % cards_of_group == 0) first += card.n_experts;
  }
  return plan;
}

}  // namespace millrace::rig
