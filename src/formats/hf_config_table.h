#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/hf_config.h"

// The one list of config.json's keys: the reader of both layouts, the writer and the tests walk it.

namespace millrace::formats {

inline constexpr int64_t kMaxDraftStages = 16;

// An object of the composite layout. The flat layout has all keys in one object.
enum class ConfigSection : uint8_t { kTop, kQuantization, kText, kRope, kVision };

// Where a key's value lives in a ModelConfig.
using ConfigSlot = std::variant<std::monostate, int64_t*, TokenId*, double*, bool*, std::string*,
                                std::vector<int64_t>*, std::optional<TokenId>*, std::optional<double>*>;

enum class ConfigKind : uint8_t {
  kInteger,   // in [low, high]
  kReal,      // in (0, high]
  kText,      // equal to `only`
  kTextList,  // one element, equal to `only`
  kFlag,      // equal to `flag`
  kIntegers,  // at most `max_length` integers in [low, high]
  kObject,    // section `child`
  kUnused,    // a key the model does not need; the writer puts the JSON text `only`
};

enum class ConfigPresence : uint8_t {
  kRequired,
  kRequiredInComposite,  // the flat layout may leave it out: `only`, or the member's default
  kOptional,             // left out by the writer while it has the member's default
  kNullable,             // may be absent or null, written as null
  kWithDraft,            // required when there are draft stages
  kWithEngram,           // required when there are engram layers
};

struct ConfigKey {
  ConfigSection section{};
  std::string_view name = {};       // in the composite layout
  std::string_view flat_name = {};  // in the flat layout; empty: `name`
  std::string_view alias = {};      // another spelling seen in the composite layout, or empty
  ConfigSlot (*slot)(ModelConfig&) = nullptr;
  ConfigKind kind{};
  ConfigPresence presence = ConfigPresence::kRequired;
  int64_t low = 0;
  int64_t high = 0;
  size_t max_length = 0;
  std::string_view only = {};
  bool flag = false;
  bool keeps_point = false;  // an integral real is written as 10.0, not 10
  ConfigSection child{};

  std::string_view flat() const { return flat_name.empty() ? name : flat_name; }
};

// In the order of the released file.
std::span<const ConfigKey> ConfigKeys();

// "text_config.rope_scaling." and so on; empty for the top level.
std::string_view ConfigSectionPrefix(ConfigSection section);

}  // namespace millrace::formats
