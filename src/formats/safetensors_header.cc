#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <boost/json/basic_parser_impl.hpp>

#include "formats/json.h"
#include "formats/safetensors.h"

namespace millrace::formats {
namespace {

namespace json = boost::json;
using json::error_code;

constexpr uint64_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

struct DTypeRow {
  DType dtype;
  std::string_view name;
  uint64_t bytes;
};

constexpr std::array kDTypes = {
    DTypeRow{DType::kF64, "F64", 8},        DTypeRow{DType::kF32, "F32", 4},
    DTypeRow{DType::kF16, "F16", 2},        DTypeRow{DType::kBF16, "BF16", 2},
    DTypeRow{DType::kF8E4M3, "F8_E4M3", 1}, DTypeRow{DType::kF8E8M0, "F8_E8M0", 1},
    DTypeRow{DType::kI64, "I64", 8},        DTypeRow{DType::kI32, "I32", 4},
    DTypeRow{DType::kI16, "I16", 2},        DTypeRow{DType::kI8, "I8", 1},
    DTypeRow{DType::kU8, "U8", 1},          DTypeRow{DType::kBool, "BOOL", 1},
};

const DTypeRow& Row(DType dtype) {
  const DTypeRow& row = kDTypes[static_cast<size_t>(dtype)];
  MILLRACE_CHECK(row.dtype == dtype, "the rows of kDTypes do not follow the order of the enum");
  return row;
}

// Walks the header's JSON and collects its tensors in the order of the text. Knows the one shape a header may
// have and refuses everything else, so that memory stays proportional to the text.
class HeaderHandler {
 public:
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = kMaxTensorDims;
  static constexpr size_t max_key_size = kMaxTensorNameBytes;
  static constexpr size_t max_string_size = kMaxHeaderBytes;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }

  bool on_object_begin(error_code& ec) {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTop:
        if (key_ == kMetadataKey) {
          if (has_metadata_) return Refuse("__metadata__ appears twice", ec);
          has_metadata_ = true;
          place_ = Place::kMetadata;
          return true;
        }
        tensor_ = {};
        tensor_.info.name = key_;
        place_ = Place::kTensor;
        return true;
      default:
        return Unexpected("an object", ec);
    }
  }

  bool on_object_end(size_t, error_code& ec) {
    if (place_ == Place::kTensor) {
      for (Field field : {Field::kDtype, Field::kShape, Field::kOffsets}) {
        if (tensor_.has(field)) continue;
        return Refuse(fmt::format("tensor {} has no {}", Quoted(tensor_.info.name), Name(field)), ec);
      }
      tensors_.push_back(std::move(tensor_.info));
    }
    place_ = Place::kTop;
    return true;
  }

  bool on_array_begin(error_code& ec) {
    if (place_ != Place::kTensor || field_ == Field::kDtype) return Unexpected("an array", ec);
    place_ = Place::kArray;
    numbers_.clear();
    return true;
  }

  bool on_array_end(size_t, error_code& ec) {
    place_ = Place::kTensor;
    if (field_ == Field::kShape) return TakeShape(ec);
    if (numbers_.size() != 2) {
      return Refuse(fmt::format("tensor {}: data_offsets has {} entries, expected 2 (begin and end)",
                                Quoted(tensor_.info.name), numbers_.size()),
                    ec);
    }
    tensor_.info.begin = numbers_[0];
    tensor_.info.end = numbers_[1];
    return true;
  }

  bool on_key_part(json::string_view part, size_t, error_code&) { return AppendText(part); }
  bool on_key(json::string_view part, size_t, error_code& ec) {
    AppendText(part);
    key_ = std::exchange(text_, {});
    if (place_ == Place::kTensor) return TakeField(ec);
    if (place_ == Place::kMetadata && !metadata_keys_.insert(key_).second) {
      return Refuse(fmt::format("__metadata__ has the key {} twice", Quoted(key_)), ec);
    }
    return true;
  }

  bool on_string_part(json::string_view part, size_t, error_code&) { return AppendText(part); }
  bool on_string(json::string_view part, size_t, error_code& ec) {
    AppendText(part);
    const std::string value = std::exchange(text_, {});
    if (place_ == Place::kMetadata) {
      metadata_.emplace_back(key_, value);
      return true;
    }
    if (place_ != Place::kTensor || field_ != Field::kDtype) return Unexpected("a string", ec);
    const Result<DType> dtype = ParseDType(value);
    if (!dtype.ok()) {
      return Refuse(fmt::format("tensor {}: {}", Quoted(tensor_.info.name), dtype.error().message()), ec);
    }
    tensor_.info.dtype = *dtype;
    return true;
  }

  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(int64_t value, json::string_view text, error_code& ec) {
    if (value < 0 || text.front() == '-') return UnexpectedNumber(text, ec);
    return on_uint64(static_cast<uint64_t>(value), text, ec);
  }
  bool on_uint64(uint64_t value, json::string_view text, error_code& ec) {
    if (place_ != Place::kArray) return Unexpected("a number", ec);
    if (value > uint64_t{std::numeric_limits<int64_t>::max()}) return UnexpectedNumber(text, ec);
    numbers_.push_back(value);
    return true;
  }
  bool on_double(double, json::string_view text, error_code& ec) { return UnexpectedNumber(text, ec); }
  bool on_bool(bool, error_code& ec) { return Unexpected("true or false", ec); }
  bool on_null(error_code& ec) { return Unexpected("null", ec); }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

  std::vector<TensorInfo> TakeTensors() { return std::move(tensors_); }
  Metadata TakeMetadata() { return std::move(metadata_); }
  // Why this handler refused; empty if it did not.
  const std::string& refusal() const { return refusal_; }
  // The last tensor or key met, to say where a syntax error is.
  const std::string& key() const { return key_; }

 private:
  enum class Place { kStart, kTop, kTensor, kArray, kMetadata };
  enum class Field { kDtype, kShape, kOffsets };
  struct PartialTensor {
    TensorInfo info;
    std::array<bool, 3> seen{};

    bool has(Field field) const { return seen[static_cast<size_t>(field)]; }
  };

  static std::string_view Name(Field field) {
    constexpr std::string_view kNames[] = {"dtype", "shape", "data_offsets"};
    return kNames[static_cast<size_t>(field)];
  }

  bool AppendText(json::string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }

  bool TakeField(error_code& ec) {
    for (Field field : {Field::kDtype, Field::kShape, Field::kOffsets}) {
      if (key_ != Name(field)) continue;
      if (std::exchange(tensor_.seen[static_cast<size_t>(field)], true)) {
        return Refuse(fmt::format("tensor {} has {} twice", Quoted(tensor_.info.name), key_), ec);
      }
      field_ = field;
      return true;
    }
    return Refuse(fmt::format("tensor {} has the unknown field {}; expected dtype, shape and data_offsets",
                              Quoted(tensor_.info.name), Quoted(key_)),
                  ec);
  }

  bool TakeShape(error_code&) {
    for (uint64_t dim : numbers_) tensor_.info.shape.push_back(static_cast<int64_t>(dim));
    return true;
  }

  // The place in words and what belongs there.
  std::string Expected() const {
    switch (place_) {
      case Place::kStart:
        return "the header: expected an object";
      case Place::kTop:
        return fmt::format("entry {}: expected an object with dtype, shape and data_offsets", Quoted(key_));
      case Place::kMetadata:
        return fmt::format("__metadata__ key {}: expected a string", Quoted(key_));
      default:
        return fmt::format("tensor {}, {}: expected {}", Quoted(tensor_.info.name), Name(field_),
                           field_ == Field::kDtype ? "a string" : "an array of non-negative integers");
    }
  }

  bool Unexpected(std::string_view found, error_code& ec) {
    return Refuse(fmt::format("{}, found {}", Expected(), found), ec);
  }
  bool UnexpectedNumber(json::string_view text, error_code& ec) {
    return Unexpected(Quoted({text.data(), text.size()}), ec);
  }
  bool Refuse(std::string why, error_code& ec) {
    refusal_ = std::move(why);
    ec = json::make_error_code(json::error::exception);
    return false;
  }

  Place place_ = Place::kStart;
  Field field_ = Field::kDtype;  // of tensor_, while inside it
  PartialTensor tensor_;
  std::string text_;  // the string or key being read
  std::string key_;
  std::vector<uint64_t> numbers_;
  std::vector<TensorInfo> tensors_;
  bool has_metadata_ = false;
  Metadata metadata_;
  std::unordered_set<std::string> metadata_keys_;
  std::string refusal_;
};

Error Corrupt(std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message));
}

std::string Range(const TensorInfo& tensor) {
  return fmt::format("[{}, {})", tensor.begin, tensor.end);
}

Status ParseHeaderJson(std::string_view text, SafetensorsHeader* header) {
  json::parse_options options;
  options.max_depth = 4;  // header, tensor, shape; the handler refuses the next level with the tensor's name
  json::basic_parser<HeaderHandler> parser(options);
  error_code ec;
  const size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && used < text.size()) ec = json::make_error_code(json::error::extra_data);
  HeaderHandler& handler = parser.handler();
  if (!handler.refusal().empty()) return Corrupt("safetensors header: " + handler.refusal());
  if (ec) {
    return Corrupt(fmt::format("safetensors header: not valid JSON at byte {} of {} (near the key {}): {}",
                               used, text.size(), Quoted(handler.key()), ec.message()));
  }
  header->tensors = handler.TakeTensors();
  header->metadata = handler.TakeMetadata();
  return {};
}

Status CheckNamesUnique(const std::vector<TensorInfo>& tensors) {
  std::unordered_set<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return Corrupt(fmt::format("safetensors header: tensor {} appears twice", Quoted(tensor.name)));
    }
  }
  return {};
}

Status CheckSize(const TensorInfo& tensor) {
  const Result<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return Corrupt(fmt::format("tensor {}: {}", Quoted(tensor.name), bytes.error().message()));
  if (tensor.begin > tensor.end) {
    return Corrupt(
        fmt::format("tensor {}: data_offsets {} end before they begin", Quoted(tensor.name), Range(tensor)));
  }
  if (tensor.end - tensor.begin != *bytes) {
    return Corrupt(fmt::format("tensor {}: data_offsets {} hold {} bytes, but {} {} needs {}",
                               Quoted(tensor.name), Range(tensor), tensor.end - tensor.begin,
                               DTypeName(tensor.dtype), ShapeString(tensor.shape), *bytes));
  }
  return {};
}

// `tensors` by ascending begin: each must start where the one before ended, and the last end with the
// payload.
Status CheckLayout(const std::vector<TensorInfo>& tensors, uint64_t payload_offset, uint64_t file_bytes) {
  const uint64_t payload_bytes = file_bytes - payload_offset;
  uint64_t end = 0;
  std::string before = "the start of the payload";
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != end) {
      return Corrupt(fmt::format("tensor {}: data_offsets {} {} {}, expected to begin at {}",
                                 Quoted(tensor.name), Range(tensor),
                                 tensor.begin > end ? "leave a gap after" : "overlap", before, end));
    }
    end = tensor.end;
    if (end > payload_bytes) {
      const uint64_t announced =
          std::max_element(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
            return a.end < b.end;
          })->end;
      // announced < 2^63 and payload_offset <= 10^8, so the sum cannot wrap.
      return Corrupt(
          fmt::format("the file is truncated or its header is wrong: {} bytes found, {} expected; the "
                      "first tensor that reaches past the end is {} with data_offsets {}. Fetch the "
                      "file again",
                      file_bytes, payload_offset + announced, Quoted(tensor.name), Range(tensor)));
    }
    before = "tensor " + Quoted(tensor.name);
  }
  if (end != payload_bytes) {
    return Corrupt(fmt::format("{} bytes found, {} expected: {} bytes follow {} that no tensor owns",
                               file_bytes, payload_offset + end, payload_bytes - end, before));
  }
  return {};
}

Result<SafetensorsHeader> ParseHeader(std::span<const std::byte> prefix, uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || prefix.size() < kLengthBytes) {
    return Corrupt(
        fmt::format("{} bytes found, a safetensors file has at least {}", file_bytes, kLengthBytes));
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) header_bytes |= std::to_integer<uint64_t>(prefix[i]) << 8 * i;
  if (header_bytes > kMaxHeaderBytes) {
    return Corrupt(
        fmt::format("the header length is {} bytes, at most {} are accepted: not a safetensors file, "
                    "or a damaged one",
                    header_bytes, kMaxHeaderBytes));
  }
  const uint64_t payload_offset = kLengthBytes + header_bytes;
  if (payload_offset > file_bytes || payload_offset > prefix.size()) {
    return Corrupt(
        fmt::format("the file is truncated inside its header: {} bytes found, the header alone takes "
                    "{}. Fetch the file again",
                    std::min<uint64_t>(file_bytes, prefix.size()), payload_offset));
  }
  const std::string_view text(reinterpret_cast<const char*>(prefix.data()) + kLengthBytes, header_bytes);
  if (text.empty() || text.front() != '{') {
    return Corrupt(
        fmt::format("the safetensors header begins with {}, expected {{", Quoted(text.substr(0, 1))));
  }
  SafetensorsHeader header;
  header.payload_offset = payload_offset;
  MILLRACE_RETURN_IF_ERROR(ParseHeaderJson(text, &header));
  MILLRACE_RETURN_IF_ERROR(CheckNamesUnique(header.tensors));
  for (const TensorInfo& tensor : header.tensors) MILLRACE_RETURN_IF_ERROR(CheckSize(tensor));
  // Writers list tensors in any order. Empty tensors share their begin with the next one and come first.
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  MILLRACE_RETURN_IF_ERROR(CheckLayout(header.tensors, payload_offset, file_bytes));
  return header;
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  return Row(dtype).name;
}
uint64_t DTypeBytes(DType dtype) {
  return Row(dtype).bytes;
}

Result<DType> ParseDType(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  std::string known;
  for (const DTypeRow& row : kDTypes) known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("unknown dtype {}; known are {}", Quoted(name), known));
}

std::string ShapeString(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<uint64_t> TensorBytes(DType dtype, std::span<const int64_t> shape) {
  const auto refuse = [&](std::string_view why) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("shape {} {}", ShapeString(shape), why));
  };
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0) return refuse("has a negative dimension");
    empty = empty || dim == 0;
  }
  if (empty) return uint64_t{0};  // whatever the other dimensions are
  auto bytes = static_cast<int64_t>(DTypeBytes(dtype));
  for (int64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return refuse("has more bytes than 63 bits can count");
  }
  return static_cast<uint64_t>(bytes);
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> prefix, uint64_t file_bytes) {
  try {
    return ParseHeader(prefix, file_bytes);
  } catch (const std::exception& e) {  // allocation failures
    return Corrupt(fmt::format("the safetensors header cannot be held: {}", e.what()));
  }
}

}  // namespace millrace::formats
