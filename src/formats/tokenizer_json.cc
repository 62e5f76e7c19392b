#include "formats/tokenizer_json.h"

#include <fmt/format.h>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include "formats/json.h"
#include "formats/text_file.h"
#include "formats/tokenizer_layout.h"

namespace millrace::formats {
namespace {

namespace json = boost::json;

std::string_view View(const json::string& text) {
  return {text.data(), text.size()};
}

// The released file nests seven deep.
constexpr JsonLimits kLimits = {.max_bytes = kMaxTokenizerFileBytes, .max_depth = 12};

template <typename... Args>
Error Corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorCode::kCorrupt, fmt::format(format, std::forward<Args>(args)...));
}

Status CheckToken(std::string_view token, std::string_view field) {
  if (token.empty()) return Corrupt("{} has an empty token", field);
  if (static_cast<int64_t>(token.size()) > kMaxRawTokenBytes) {
    return Corrupt("{} has a token of {} bytes ({}), at most {} are accepted", field, token.size(),
                   Quoted(token), kMaxRawTokenBytes);
  }
  return {};
}

Result<TokenId> ReadId(const json::value& value, std::string_view token, std::string_view field) {
  if (value.is_int64() && value.get_int64() >= 0 && value.get_int64() < kMaxVocabSize) {
    return static_cast<TokenId>(value.get_int64());
  }
  return Corrupt("{}: the id of {} is {}, expected an integer from 0 to {}", field, Quoted(token),
                 Quoted(json::serialize(value)), kMaxVocabSize - 1);
}

// Fills TokenizerData from a parsed file; each step relies on those before it.
class Reader {
 public:
  explicit Reader(const json::object& file) : file_(file) {}

  Result<TokenizerData> Read() && {
    MILLRACE_RETURN_IF_ERROR(CheckTokenizerLayout(file_));
    MILLRACE_RETURN_IF_ERROR(ReadVocab());
    MILLRACE_RETURN_IF_ERROR(ReadAddedTokens());
    MILLRACE_RETURN_IF_ERROR(CheckAlphabet());
    MILLRACE_RETURN_IF_ERROR(ReadMerges());
    return std::move(data_);
  }

 private:
  Status ReadVocab();
  Status ReadAddedTokens();
  Status ReadAddedToken(const json::value& value, const std::string& field);
  Status PutAddedToken(AddedToken token, const std::string& field);
  Status CheckAlphabet() const;
  Status ReadMerges();
  Result<std::pair<std::string_view, std::string_view>> MergeParts(const json::value& value,
                                                                   size_t rank) const;
  Result<TokenId> BaseId(std::string_view token, size_t rank) const;

  std::string& Slot(TokenId id) {
    if (data_.tokens.size() <= static_cast<size_t>(id)) data_.tokens.resize(static_cast<size_t>(id) + 1);
    return data_.tokens[static_cast<size_t>(id)];
  }

  const json::object& file_;
  TokenizerData data_;
  std::unordered_map<std::string_view, TokenId> base_ids_;  // keys view file_
  std::unordered_set<std::string_view> added_contents_;     // views file_
};

Status Reader::ReadVocab() {
  const json::value* vocab = file_.at("model").as_object().if_contains("vocab");
  if (vocab == nullptr || !vocab->is_object()) {
    return Corrupt("model.vocab is missing or not an object, expected token to id");
  }
  base_ids_.reserve(vocab->get_object().size());
  for (const auto& entry : vocab->get_object()) {
    const std::string_view token(entry.key().data(), entry.key().size());
    MILLRACE_RETURN_IF_ERROR(CheckToken(token, "model.vocab"));
    MILLRACE_ASSIGN_OR_RETURN(const TokenId id, ReadId(entry.value(), token, "model.vocab"));
    std::string& slot = Slot(id);
    if (!slot.empty()) {
      return Corrupt("model.vocab: id {} belongs to both {} and {}", id, Quoted(slot), Quoted(token));
    }
    slot = token;
    base_ids_.emplace(token, id);
  }
  return {};
}

Status Reader::ReadAddedTokens() {
  const json::value* list = file_.if_contains("added_tokens");
  if (list == nullptr || !list->is_array()) return Corrupt("added_tokens is missing or not an array");
  const json::array& entries = list->get_array();
  for (size_t i = 0; i < entries.size(); ++i) {
    MILLRACE_RETURN_IF_ERROR(ReadAddedToken(entries[i], fmt::format("added_tokens[{}]", i)));
  }
  std::ranges::sort(data_.added_tokens, {}, &AddedToken::id);
  for (size_t i = 1; i < data_.added_tokens.size(); ++i) {
    const AddedToken& first = data_.added_tokens[i - 1];
    const AddedToken& second = data_.added_tokens[i];
    if (first.id == second.id) {
      return Corrupt("added_tokens: id {} belongs to both {} and {}", first.id, Quoted(first.content),
                     Quoted(second.content));
    }
  }
  return {};
}

Status Reader::ReadAddedToken(const json::value& value, const std::string& field) {
  const json::object* entry = value.if_object();
  const json::value* content = entry == nullptr ? nullptr : entry->if_contains("content");
  const json::value* id = entry == nullptr ? nullptr : entry->if_contains("id");
  if (content == nullptr || !content->is_string() || id == nullptr) {
    return Corrupt("{} is {}, expected an object with id and content", field, Quoted(json::serialize(value)));
  }
  const std::string_view text = View(content->get_string());
  MILLRACE_RETURN_IF_ERROR(CheckToken(text, field));
  MILLRACE_ASSIGN_OR_RETURN(const TokenId token_id, ReadId(*id, text, field));
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    const json::value* set = entry->if_contains(flag);
    if (set != nullptr && *set != json::value(false)) {
      return Error(
          ErrorCode::kMismatch,
          fmt::format("{} ({}): {} is {}, but control tokens are matched literally, where it is false", field,
                      Quoted(text), flag, Quoted(json::serialize(*set))));
    }
  }
  const json::value* special = entry->if_contains("special");
  if (special != nullptr && !special->is_bool()) {
    return Corrupt("{} ({}): special is {}, expected true or false", field, Quoted(text),
                   Quoted(json::serialize(*special)));
  }
  if (!added_contents_.insert(text).second) {
    return Corrupt("{}: the token {} stands twice in added_tokens", field, Quoted(text));
  }
  return PutAddedToken(
      {.id = token_id, .content = std::string(text), .special = special != nullptr && special->get_bool()},
      field);
}

Status Reader::PutAddedToken(AddedToken token, const std::string& field) {
  const auto base = base_ids_.find(token.content);
  if (base != base_ids_.end() && base->second != token.id) {
    return Corrupt("{}: {} has id {} here and {} in model.vocab", field, Quoted(token.content), token.id,
                   base->second);
  }
  std::string& slot = Slot(token.id);
  if (base == base_ids_.end()) {
    const bool taken_by_base = !slot.empty() && base_ids_.contains(slot);
    if (taken_by_base) {
      return Corrupt("{}: id {} of {} belongs to {} in model.vocab", field, token.id, Quoted(token.content),
                     Quoted(slot));
    }
    slot = token.content;
  }
  data_.added_tokens.push_back(std::move(token));
  return {};
}

Status Reader::CheckAlphabet() const {
  for (const auto& [token, id] : base_ids_) {
    if (added_contents_.contains(token)) continue;
    const Result<std::string> bytes = ByteLevelDecode(token);
    if (!bytes.ok()) return bytes.error().In(fmt::format("model.vocab: id {}", id));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string raw = ByteLevelEncode(std::string(1, static_cast<char>(byte)));
    if (!base_ids_.contains(raw) || added_contents_.contains(raw)) {
      return Corrupt(
          "model.vocab lacks {}, the token of byte 0x{:02x}; without all 256 bytes some text cannot "
          "be encoded",
          Quoted(raw), byte);
    }
  }
  return {};
}

Result<std::pair<std::string_view, std::string_view>> Reader::MergeParts(const json::value& value,
                                                                         size_t rank) const {
  if (value.is_string()) {
    const std::string_view text = View(value.get_string());
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
  } else if (value.is_array() && value.get_array().size() == 2 && value.get_array()[0].is_string() &&
             value.get_array()[1].is_string()) {
    return std::pair(View(value.get_array()[0].get_string()), View(value.get_array()[1].get_string()));
  }
  return Corrupt("model.merges[{}] is {}, expected \"left right\" or [\"left\", \"right\"]", rank,
                 Quoted(json::serialize(value)));
}

Result<TokenId> Reader::BaseId(std::string_view token, size_t rank) const {
  const auto found = base_ids_.find(token);
  if (found == base_ids_.end() || added_contents_.contains(token)) {
    return Corrupt("model.merges[{}]: {} is not a base token of model.vocab", rank, Quoted(token));
  }
  return found->second;
}

Status Reader::ReadMerges() {
  const json::value* list = file_.at("model").as_object().if_contains("merges");
  if (list == nullptr || !list->is_array()) return Corrupt("model.merges is missing or not an array");
  const json::array& merges = list->get_array();
  if (static_cast<int64_t>(merges.size()) > kMaxVocabSize) {
    return Corrupt("model.merges has {} entries, at most {} are accepted", merges.size(), kMaxVocabSize);
  }
  std::unordered_set<uint64_t> pairs;
  pairs.reserve(merges.size());
  data_.merges.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    MILLRACE_ASSIGN_OR_RETURN(const auto parts, MergeParts(merges[rank], rank));
    MILLRACE_ASSIGN_OR_RETURN(const TokenId left, BaseId(parts.first, rank));
    MILLRACE_ASSIGN_OR_RETURN(const TokenId right, BaseId(parts.second, rank));
    joined.assign(parts.first).append(parts.second);
    MILLRACE_ASSIGN_OR_RETURN([[maybe_unused]] const TokenId result, BaseId(joined, rank));
    if (!pairs.insert(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right)).second) {
      return Corrupt("model.merges[{}]: the pair {} and {} stands twice", rank, Quoted(parts.first),
                     Quoted(parts.second));
    }
    data_.merges.emplace_back(parts.first, parts.second);
  }
  return {};
}

json::object AddedTokenEntry(const AddedToken& token) {
  return {{"id", token.id},  {"content", token.content}, {"single_word", false},    {"lstrip", false},
          {"rstrip", false}, {"normalized", false},      {"special", token.special}};
}

}  // namespace

Result<TokenizerData> ParseTokenizerJson(std::string_view text) {
  MILLRACE_ASSIGN_OR_RETURN(const json::value file, ParseJson(text, kLimits));
  if (!file.is_object()) return Corrupt("the top level is not an object");
  return Reader(file.get_object()).Read();
}

Result<TokenizerData> ReadTokenizerJson(const std::filesystem::path& path) {
  std::error_code status;
  const bool is_directory = std::filesystem::is_directory(path, status);
  const std::filesystem::path file = is_directory ? path / "tokenizer.json" : path;
  if (!std::filesystem::exists(file, status)) {
    return Error(
        ErrorCode::kNotFound,
        fmt::format("{} does not exist; give the checkpoint directory, or make the released file with "
                    "scripts/fetch-tokenizer",
                    file.string()));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file, kMaxTokenizerFileBytes));
  Result<TokenizerData> data = ParseTokenizerJson(text);
  if (!data.ok()) return data.error().In(file.string());
  return data;
}

std::string WriteTokenizerJson(const TokenizerData& data) {
  json::object file = ReleasedTokenizerLayout();
  std::vector<bool> is_added(data.tokens.size(), false);
  json::array& added = file["added_tokens"].get_array();
  for (const AddedToken& token : data.added_tokens) {
    is_added[static_cast<size_t>(token.id)] = true;
    added.push_back(AddedTokenEntry(token));
  }
  size_t base_end = data.tokens.size();  // one past the highest base id
  while (base_end > 0 && (is_added[base_end - 1] || data.tokens[base_end - 1].empty())) --base_end;
  json::object& model = file["model"].get_object();
  json::object& vocab = model["vocab"].get_object();
  for (size_t id = 0; id < base_end; ++id) {
    if (!data.tokens[id].empty()) vocab.emplace(data.tokens[id], static_cast<int64_t>(id));
  }
  json::array& merges = model["merges"].get_array();
  for (const auto& [left, right] : data.merges) merges.emplace_back(left + ' ' + right);
  return json::serialize(file);
}

}  // namespace millrace::formats
