#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/hf_config_table.h"
#include "formats/json.h"

namespace millrace::formats {
namespace {

// Where the value stands in a config of all defaults, in which both optional sections exist.
ModelConfig Defaults() {
  ModelConfig config;
  config.rope_scaling.emplace();
  config.vision_config.emplace();
  return config;
}

class ConfigWriter {
 public:
  explicit ConfigWriter(const ModelConfig& config) : config_(config), defaults_(Defaults()) {
    // The file lists the draft stages' ratios too.
    config_.compress_ratios.resize(
        static_cast<size_t>(config.num_hidden_layers + config.num_nextn_predict_layers));
  }

  std::string Write() {
    WriteSection(ConfigSection::kTop, 1);
    return std::move(text_) + "\n";
  }

 private:
  void WriteSection(ConfigSection section, int depth) {
    text_ += '{';
    bool first = true;
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.section != section || IsLeftOut(key)) continue;
      if (!first) text_ += ',';
      first = false;
      NewLine(depth);
      text_ += JsonString(key.name) + ": ";
      WriteValue(key, depth);
    }
    NewLine(depth - 1);
    text_ += '}';
  }

  bool IsLeftOut(const ConfigKey& key) {
    switch (key.presence) {
      case ConfigPresence::kOptional:
        if (key.kind == ConfigKind::kUnused) return false;
        if (key.kind != ConfigKind::kObject) return HasDefault(key);
        return key.child == ConfigSection::kRope ? !config_.rope_scaling : !config_.vision_config;
      case ConfigPresence::kWithDraft:
        return config_.num_nextn_predict_layers == 0 && HasDefault(key);
      case ConfigPresence::kWithEngram:
        return config_.engram_layer_ids.empty() && HasDefault(key);
      default:
        return false;
    }
  }

  bool HasDefault(const ConfigKey& key) {
    const ConfigSlot value = key.slot(config_);
    const ConfigSlot unset = key.slot(defaults_);
    return std::visit(
        [&unset](auto slot) {
          using Slot = decltype(slot);
          if constexpr (std::is_same_v<Slot, std::monostate>)
            return true;
          else
            return *slot == *std::get<Slot>(unset);
        },
        value);
  }

  void WriteValue(const ConfigKey& key, int depth) {
    if (key.kind == ConfigKind::kObject) return WriteSection(key.child, depth + 1);
    if (key.kind == ConfigKind::kUnused) {
      text_ += key.only;
      return;
    }
    if (key.slot == nullptr) {
      text_ += JsonString(key.only);
      return;
    }
    std::visit([&](auto slot) { WriteSlot(key, slot, depth); }, key.slot(config_));
  }

  void WriteSlot(const ConfigKey&, std::monostate, int) {}
  void WriteSlot(const ConfigKey&, const int64_t* value, int) { text_ += fmt::format("{}", *value); }
  void WriteSlot(const ConfigKey&, const TokenId* value, int) { text_ += fmt::format("{}", *value); }
  void WriteSlot(const ConfigKey&, const bool* value, int) { text_ += *value ? "true" : "false"; }
  void WriteSlot(const ConfigKey& key, const double* value, int) {
    const std::string digits = fmt::format("{}", *value);  // the shortest that reads back the same
    text_ += digits;
    if (key.keeps_point && digits.find_first_of(".e") == std::string::npos) text_ += ".0";
  }
  void WriteSlot(const ConfigKey& key, const std::string* value, int depth) {
    if (key.kind != ConfigKind::kTextList) {
      text_ += JsonString(*value);
      return;
    }
    WriteList({JsonString(*value)}, depth);
  }
  void WriteSlot(const ConfigKey&, const std::vector<int64_t>* values, int depth) {
    std::vector<std::string> texts;
    for (int64_t value : *values) texts.push_back(fmt::format("{}", value));
    WriteList(texts, depth);
  }
  template <typename T>
  void WriteSlot(const ConfigKey& key, const std::optional<T>* value, int depth) {
    if (!*value) {
      text_ += "null";
      return;
    }
    WriteSlot(key, &**value, depth);
  }

  void WriteList(const std::vector<std::string>& elements, int depth) {
    if (elements.empty()) {
      text_ += "[]";
      return;
    }
    text_ += '[';
    for (size_t i = 0; i < elements.size(); ++i) {
      if (i > 0) text_ += ',';
      NewLine(depth + 1);
      text_ += elements[i];
    }
    NewLine(depth);
    text_ += ']';
  }

  void NewLine(int depth) {
    text_ += '\n';
    text_.append(static_cast<size_t>(depth) * 2, ' ');
  }

  ModelConfig config_;
  ModelConfig defaults_;
  std::string text_;
};

}  // namespace

std::string WriteHfConfig(const ModelConfig& config) {
  return ConfigWriter(config).Write();
}

}  // namespace millrace::formats
