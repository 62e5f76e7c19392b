#include "formats/hf_config.h"

#include <algorithm>
#include <cmath>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "formats/hf_config_table.h"
#include "formats/json.h"
#include "formats/text_file.h"

namespace millrace::formats {
namespace {

namespace json = boost::json;

constexpr JsonLimits kLimits = {.max_bytes = size_t{1} << 20, .max_depth = 16};

// Keys that Hugging Face tools add and that do not change what a model computes.
constexpr std::string_view kHarmlessKeys[] = {"_name_or_path", "auto_map", "torch_dtype",
                                              "tie_word_embeddings", "use_cache"};

std::string_view View(json::string_view text) {
  return {text.data(), text.size()};
}

// A value as it stands in the file, for an error message.
std::string Found(const json::value& value) {
  if (value.is_string()) return Quoted(View(value.get_string()));
  return Clipped(json::serialize(value));
}

// The integer that a number stands for; 5120.0 is one, 0.5 and 1e300 are not.
std::optional<int64_t> IntegerIn(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (!value.is_double()) return std::nullopt;  // uint64 values here are beyond every accepted range
  const double real = value.get_double();
  if (std::trunc(real) != real || std::fabs(real) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(real);
}

// Fills a ModelConfig from one object tree, key by key of the table, and keeps every problem met.
class ConfigReader {
 public:
  void ReadComposite(const json::object& top) {
    ReadSection(ConfigSection::kTop, &top);
    CheckTogether("text_config.");
  }

  void ReadFlat(const json::object& object) {
    flat_ = true;
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.kind == ConfigKind::kObject || key.kind == ConfigKind::kUnused) continue;
      if (key.section == ConfigSection::kRope && !Emplace(config_.rope_scaling, object, key)) continue;
      if (key.section == ConfigSection::kVision && !Emplace(config_.vision_config, object, key)) continue;
      ReadKey(key, object);
    }
    NoteUnknown(object, "", [](const ConfigKey&) { return true; });
    FillMaxPositions();
    CheckTogether("");
  }

  Result<ModelConfig> Finish() && {
    if (problems_.empty()) return std::move(config_);
    if (problems_.size() == 1) return Error(ErrorCode::kMismatch, problems_.front());
    return Error(ErrorCode::kMismatch,
                 fmt::format("{} problems:\n  {}", problems_.size(), fmt::join(problems_, "\n  ")));
  }

 private:
  // Composite: the keys of `section`, found in `object` (null: the section is missing and was reported).
  void ReadSection(ConfigSection section, const json::object* object) {
    if (object == nullptr) return;
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.section != section || key.kind == ConfigKind::kUnused) continue;
      if (key.kind == ConfigKind::kObject) {
        ReadSection(key.child, Child(key, *object));
      } else {
        ReadKey(key, *object);
      }
    }
    NoteUnknown(*object, ConfigSectionPrefix(section),
                [section](const ConfigKey& key) { return key.section == section; });
  }

  const json::object* Child(const ConfigKey& key, const json::object& parent) {
    const json::value* value = parent.if_contains(key.name);
    if (value == nullptr || value->is_null()) {
      if (key.presence == ConfigPresence::kRequired) Missing(key);
      return nullptr;
    }
    if (!value->is_object()) {
      Wrong(key, *value, "an object");
      return nullptr;
    }
    if (key.child == ConfigSection::kRope) config_.rope_scaling.emplace();
    if (key.child == ConfigSection::kVision) config_.vision_config.emplace();
    return &value->get_object();
  }

  // Flat: a section exists once any of its keys does. Defaults of the members stand for the rest only where
  // the table says so. False while `object` has no key of the section.
  template <typename Part>
  bool Emplace(std::optional<Part>& part, const json::object& object, const ConfigKey& of) {
    if (part) return true;
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.section != of.section || key.kind == ConfigKind::kUnused) continue;
      if (!object.contains(key.flat())) continue;
      part.emplace();
      return true;
    }
    return false;
  }

  void ReadKey(const ConfigKey& key, const json::object& object) {
    const json::value* value = object.if_contains(flat_ ? key.flat() : key.name);
    if (!flat_ && !key.alias.empty()) {
      const json::value* other = object.if_contains(key.alias);
      if (value != nullptr && other != nullptr && *value != *other) {
        problems_.push_back(fmt::format("{} is {}, but its other spelling {} is {}", Path(key), Found(*value),
                                        key.alias, Found(*other)));
      }
      if (value == nullptr) value = other;
    }
    const bool null_is_absent =
        key.presence == ConfigPresence::kNullable || key.presence == ConfigPresence::kOptional;
    if (value == nullptr || (null_is_absent && value->is_null())) return TakeAbsent(key);
    Take(key, *value);
  }

  void TakeAbsent(const ConfigKey& key) {
    switch (key.presence) {
      case ConfigPresence::kOptional:
      case ConfigPresence::kNullable:
        return;
      case ConfigPresence::kWithDraft:
        if (config_.num_nextn_predict_layers > 0) Missing(key);
        return;
      case ConfigPresence::kWithEngram:
        if (!config_.engram_layer_ids.empty()) Missing(key);
        return;
      case ConfigPresence::kRequiredInComposite:
        if (!flat_) return Missing(key);
        return TakeOnlyValue(key);
      case ConfigPresence::kRequired:
        return Missing(key);
    }
  }

  // What a flat file may leave out has one accepted value; ids and positions keep the member's default.
  void TakeOnlyValue(const ConfigKey& key) {
    const ConfigSlot slot = Slot(key);
    if (auto* const* text = std::get_if<std::string*>(&slot)) **text = key.only;
    if (auto* const* flag = std::get_if<bool*>(&slot)) **flag = key.flag;
    if (auto* const* list = std::get_if<std::vector<int64_t>*>(&slot)) **list = {key.low, key.low};
  }

  void Take(const ConfigKey& key, const json::value& value) {
    switch (key.kind) {
      case ConfigKind::kInteger:
        return TakeInteger(key, value);
      case ConfigKind::kReal:
        return TakeReal(key, value);
      case ConfigKind::kText:
        return TakeText(key, value, value);
      case ConfigKind::kTextList:
        if (!value.is_array() || value.get_array().size() != 1) {
          return Wrong(key, value, fmt::format("[{}]", JsonString(key.only)));
        }
        return TakeText(key, value, value.get_array().front());
      case ConfigKind::kFlag:
        if (!value.is_bool() || value.get_bool() != key.flag) {
          return Wrong(key, value, key.flag ? "true" : "false");
        }
        *std::get<bool*>(Slot(key)) = key.flag;
        return;
      case ConfigKind::kIntegers:
        return TakeIntegers(key, value);
      case ConfigKind::kObject:
      case ConfigKind::kUnused:
        MILLRACE_CHECK(false, "objects and unused keys have no value to take");
    }
  }

  void TakeInteger(const ConfigKey& key, const json::value& value) {
    const std::optional<int64_t> integer = IntegerIn(value);
    if (!integer || *integer < key.low || *integer > key.high) {
      return Wrong(key, value,
                   key.low == key.high ? fmt::format("{}", key.low)
                                       : fmt::format("an integer from {} to {}", key.low, key.high));
    }
    const ConfigSlot slot = Slot(key);
    if (auto* const* plain = std::get_if<int64_t*>(&slot)) **plain = *integer;
    if (auto* const* token = std::get_if<TokenId*>(&slot)) **token = static_cast<TokenId>(*integer);
    if (auto* const* token = std::get_if<std::optional<TokenId>*>(&slot)) {
      **token = static_cast<TokenId>(*integer);
    }
  }

  void TakeReal(const ConfigKey& key, const json::value& value) {
    const double real = value.is_number() ? value.to_number<double>() : 0.0;
    if (!(real > 0) || real > static_cast<double>(key.high)) {
      return Wrong(key, value, fmt::format("a number above 0 and up to {}", key.high));
    }
    const ConfigSlot slot = Slot(key);
    if (auto* const* plain = std::get_if<double*>(&slot)) **plain = real;
    if (auto* const* optional = std::get_if<std::optional<double>*>(&slot)) **optional = real;
  }

  // `whole` is what the file has for the key, `text` the string in it.
  void TakeText(const ConfigKey& key, const json::value& whole, const json::value& text) {
    if (!text.is_string() || View(text.get_string()) != key.only) {
      return Wrong(key, whole, JsonString(key.only));
    }
    if (key.slot != nullptr) *std::get<std::string*>(Slot(key)) = key.only;
  }

  void TakeIntegers(const ConfigKey& key, const json::value& value) {
    const auto refuse = [&] {
      Wrong(key, value,
            fmt::format("a list of at most {} integers from {} to {}", key.max_length, key.low, key.high));
    };
    if (!value.is_array() || value.get_array().size() > key.max_length) return refuse();
    std::vector<int64_t> integers;
    for (const json::value& element : value.get_array()) {
      const std::optional<int64_t> integer = IntegerIn(element);
      if (!integer || *integer < key.low || *integer > key.high) return refuse();
      integers.push_back(*integer);
    }
    *std::get<std::vector<int64_t>*>(Slot(key)) = std::move(integers);
  }

  // A flat file has no max_position_embeddings; YaRN stretches the original length by its factor.
  void FillMaxPositions() {
    if (config_.max_position_embeddings != 0 || !problems_.empty()) return;
    const double positions =
        config_.rope_scaling ? config_.rope_scaling->factor *
                                   static_cast<double>(config_.rope_scaling->original_max_position_embeddings)
                             : 0;
    if (positions >= 1 && positions <= 0x1p30 && std::trunc(positions) == positions) {
      config_.max_position_embeddings = static_cast<int64_t>(positions);
    } else {
      problems_.push_back(
          "max_position_embeddings is missing and does not follow from original_seq_len and "
          "rope_factor; add it");
    }
  }

  // Lengths and ids that depend on other keys. Skipped when single keys are wrong already.
  void CheckTogether(std::string_view prefix) {
    if (!problems_.empty()) return;
    CheckCompressRatios(prefix);
    if (config_.weight_block_size.size() != 2) {
      problems_.push_back(fmt::format("weight_block_size is [{}], expected [32, 32]",
                                      fmt::join(config_.weight_block_size, ", ")));
    }
    if (config_.engram_num_embeddings.size() != config_.engram_layer_ids.size()) {
      problems_.push_back(
          fmt::format("{0}engram_num_embeddings has {1} entries, but {0}engram_layer_ids {2}: "
                      "expected one table size per engram layer",
                      prefix, config_.engram_num_embeddings.size(), config_.engram_layer_ids.size()));
    }
    CheckIds();
  }

  void CheckCompressRatios(std::string_view prefix) {
    std::vector<int64_t>& ratios = config_.compress_ratios;
    const auto layers = static_cast<size_t>(config_.num_hidden_layers);
    if (ratios.size() < layers || ratios.size() > layers + kMaxDraftStages) {
      problems_.push_back(fmt::format(
          "{}compress_ratios has {} entries, expected {} (one a layer) and at most {} more for draft "
          "stages",
          prefix, ratios.size(), layers, kMaxDraftStages));
      return;
    }
    for (size_t i = layers; i < ratios.size(); ++i) {
      if (ratios[i] == 0) continue;
      problems_.push_back(
          fmt::format("{}compress_ratios[{}] is {}, expected 0: entries past layer {} belong to "
                      "draft stages, which do not compress",
                      prefix, i, ratios[i], layers - 1));
    }
    ratios.resize(layers);
  }

  // Token ids must be in the vocabulary, layer ids in the network.
  void CheckIds() {
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.slot == nullptr || key.section == ConfigSection::kRope ||
          key.section == ConfigSection::kVision) {
        continue;
      }
      const ConfigSlot slot = Slot(key);
      std::optional<int64_t> token;
      if (auto* const* plain = std::get_if<TokenId*>(&slot)) token = **plain;
      if (auto* const* optional = std::get_if<std::optional<TokenId>*>(&slot)) token = **optional;
      if (token && *token >= config_.vocab_size) {
        problems_.push_back(fmt::format("{} is {}, expected a token id below vocab_size {}", Path(key),
                                        *token, config_.vocab_size));
      }
      auto* const* list = std::get_if<std::vector<int64_t>*>(&slot);
      if (list == nullptr || !key.name.ends_with("_layer_ids")) continue;
      for (int64_t layer : **list) {
        if (layer < config_.num_hidden_layers) continue;
        problems_.push_back(fmt::format("{} holds {}, expected layer ids below num_hidden_layers {}",
                                        Path(key), layer, config_.num_hidden_layers));
      }
    }
    if (config_.candidate_source_layer_id >= config_.num_hidden_layers) {
      problems_.push_back(fmt::format("candidate_source_layer_id is {}, expected below num_hidden_layers {}",
                                      config_.candidate_source_layer_id, config_.num_hidden_layers));
    }
  }

  template <typename InSection>
  void NoteUnknown(const json::object& object, std::string_view prefix, const InSection& in_section) {
    for (const auto& member : object) {
      const std::string_view name = View(member.key());
      const auto names_it = [&](const ConfigKey& key) {
        if (!in_section(key)) return false;
        return flat_ ? key.kind != ConfigKind::kObject && (name == key.flat() || name == key.name)
                     : name == key.name || (!key.alias.empty() && name == key.alias);
      };
      const std::span<const ConfigKey> keys = ConfigKeys();
      if (std::any_of(keys.begin(), keys.end(), names_it)) continue;
      if (std::find(std::begin(kHarmlessKeys), std::end(kHarmlessKeys), name) != std::end(kHarmlessKeys))
        continue;
      config_.unknown_keys.push_back(std::string(prefix) + std::string(name));
    }
  }

  ConfigSlot Slot(const ConfigKey& key) { return key.slot == nullptr ? ConfigSlot() : key.slot(config_); }

  std::string Path(const ConfigKey& key) const {
    if (flat_) return std::string(key.flat());
    return std::string(ConfigSectionPrefix(key.section)) + std::string(key.name);
  }
  void Missing(const ConfigKey& key) { problems_.push_back(fmt::format("{} is missing", Path(key))); }
  void Wrong(const ConfigKey& key, const json::value& found, std::string_view expected) {
    problems_.push_back(fmt::format("{} is {}, expected {}", Path(key), Found(found), expected));
  }

  ModelConfig config_;
  bool flat_ = false;
  std::vector<std::string> problems_;
};

// The one string in `value`, or in its only element.
std::optional<std::string_view> TextIn(const json::value* value) {
  if (value != nullptr && value->is_array() && value->get_array().size() == 1)
    value = &value->get_array().front();
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return View(value->get_string());
}

// Other families get one clear answer instead of a list of missing keys.
Status CheckFamily(const json::object& top) {
  const auto architecture = TextIn(top.if_contains("architectures"));
  const auto model_type = TextIn(top.if_contains("model_type"));
  const auto routes_by_hash = [&top](std::string_view key) {
    const json::value* layers = top.if_contains(key);
    return layers != nullptr && *layers != 0;
  };
  if (architecture == "DeepseekV4ForCausalLM" || model_type == "deepseek_v4" ||
      routes_by_hash("num_hash_layers") || routes_by_hash("n_hash_layers")) {
    return Error(
        ErrorCode::kMismatch,
        "this is a DeepSeek-V4 config (deepseek_v4, with hash-routed layers); expected DeepSeek-V4.1 "
        "(deepseek_v41). Give the config.json that came with the weights");
  }
  if (architecture.value_or("DeepseekV41ForCausalLM") != "DeepseekV41ForCausalLM" ||
      model_type.value_or("deepseek_v41") != "deepseek_v41") {
    return Error(ErrorCode::kMismatch,
                 fmt::format("another model family: architectures {}, model_type {}; expected "
                             "DeepseekV41ForCausalLM, deepseek_v41",
                             Quoted(architecture.value_or("")), Quoted(model_type.value_or(""))));
  }
  return {};
}

bool LooksFlat(const json::object& top) {
  const std::span<const ConfigKey> keys = ConfigKeys();
  return std::any_of(keys.begin(), keys.end(), [&top](const ConfigKey& key) {
    return key.section == ConfigSection::kText && key.flat() != key.name && top.contains(key.flat());
  });
}

}  // namespace

Result<ModelConfig> ParseHfConfig(std::string_view text) {
  MILLRACE_ASSIGN_OR_RETURN(const json::value document, ParseJson(text, kLimits));
  if (!document.is_object()) {
    return Error(ErrorCode::kMismatch, fmt::format("the file holds {}, expected an object", Found(document)));
  }
  const json::object& top = document.get_object();
  MILLRACE_RETURN_IF_ERROR(CheckFamily(top));
  ConfigReader reader;
  if (top.contains("text_config")) {
    reader.ReadComposite(top);
  } else if (LooksFlat(top)) {
    reader.ReadFlat(top);
  } else {
    return Error(
        ErrorCode::kMismatch,
        "neither text_config (the released config.json) nor dim, n_layers, ... (inference/config.json) is "
        "there: not a DeepSeek-V4.1 config");
  }
  return std::move(reader).Finish();
}

Result<ModelConfig> ReadHfConfig(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path file =
      std::filesystem::is_directory(path, ignored) ? path / "config.json" : path;
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file, kLimits.max_bytes));
  Result<ModelConfig> config = ParseHfConfig(text);
  if (!config.ok()) return config.error().In(file.string());
  return config;
}

}  // namespace millrace::formats
