#include "formats/safetensors.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/scratch_dir.h"

namespace millrace::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string LengthField(uint64_t n) {
  std::string field;
  for (int i = 0; i < 8; ++i) field += static_cast<char>(n >> 8 * i & 0xFF);
  return field;
}

// A file with `json` as its header and `payload_bytes` bytes 0, 1, 2, ... behind it.
std::string FileWith(std::string_view json, size_t payload_bytes) {
  std::string file = LengthField(json.size()) + std::string(json);
  for (size_t i = 0; i < payload_bytes; ++i) file += static_cast<char>(i);
  return file;
}

Result<SafetensorsHeader> Parse(std::string_view file) {
  return ParseSafetensorsHeader(AsBytes(file), file.size());
}

std::string ErrorOf(std::string_view file) {
  const Result<SafetensorsHeader> header = Parse(file);
  if (header.ok()) return "accepted";
  EXPECT_EQ(header.error().code(), ErrorCode::kCorrupt);
  return header.error().message();
}

constexpr std::string_view kTwoTensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[3,11]},)"
    R"("a":{"data_offsets":[0,3],"dtype":"F8_E4M3","shape":[3]}}   )";

TEST(SafetensorsHeader, TensorsComeByOffsetWhateverTheirOrderInTheText) {
  const auto header = Parse(FileWith(kTwoTensors, 11));
  ASSERT_TRUE(header.ok()) << header.error().message();
  EXPECT_EQ(header->payload_offset, 8 + kTwoTensors.size());
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dtype, DType::kF8E4M3);
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_THAT(header->tensors[1].shape, ElementsAre(2, 1));
  EXPECT_EQ(header->tensors[1].begin, 3u);
  EXPECT_EQ(header->tensors[1].end, 11u);
  EXPECT_THAT(header->metadata, ElementsAre(std::pair<std::string, std::string>("format", "pt")));
}

TEST(SafetensorsHeader, ScalarsEmptyTensorsAndEmptyFilesAreValid) {
  EXPECT_TRUE(Parse(FileWith("{}", 0)).ok());
  EXPECT_TRUE(Parse(FileWith(R"({"__metadata__":{}})", 0)).ok());
  const auto header =
      Parse(FileWith(R"({"full":{"dtype":"I8","shape":[2],"data_offsets":[4,6]},)"
                     R"("empty":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[4,4]},)"
                     R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                     R"("last":{"dtype":"BOOL","shape":[0],"data_offsets":[6,6]}})",
                     6));
  ASSERT_TRUE(header.ok()) << header.error().message();
  std::vector<std::string> names;
  for (const TensorInfo& tensor : header->tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("scalar", "empty", "full", "last"));
}

struct Malformed {
  const char* name;  // the same as its seed in fuzz/corpus
  const char* json;
  size_t payload_bytes;
  const char* error;
};

// clang-format off
constexpr Malformed kMalformed[] = {
    {"gap", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5,
     R"(tensor "b": data_offsets [3, 5) leave a gap after tensor "a", expected to begin at 2)"},
    {"gap at start", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
     R"(tensor "a": data_offsets [1, 3) leave a gap after the start of the payload, expected to begin at 0)"},
    {"overlap", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
     R"(tensor "b": data_offsets [1, 3) overlap tensor "a", expected to begin at 2)"},
    {"same range", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2,
     R"(overlap tensor "a")"},
    {"empty inside another", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", 4,
     R"(tensor "b": data_offsets [2, 2) overlap tensor "a")"},
    {"past the end", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[9],"data_offsets":[2,11]}})", 10,
     R"(the first tensor that reaches past the end is "b" with data_offsets [2, 11))"},
    {"trailing bytes", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 5,
     R"(3 bytes follow tensor "a" that no tensor owns)"},
    {"bytes without tensors", "{}", 1, "1 bytes follow the start of the payload that no tensor owns"},
    {"offsets reversed", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2,
     R"(tensor "a": data_offsets [2, 0) end before they begin)"},
    {"size disagrees", R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,12]}})", 12,
     R"(tensor "a": data_offsets [0, 12) hold 12 bytes, but F32 [2, 3] needs 24)"},
    {"shape overflow", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     R"(tensor "a": shape [4294967296, 4294967296] has more bytes than 63 bits can count)"},
    {"offset beyond int64", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775808,9223372036854775809]}})", 0,
     R"(expected an array of non-negative integers, found "9223372036854775808")"},
    {"huge offsets", R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})", 0,
     "the file is truncated or its header is wrong"},
    {"negative dimension", R"({"a":{"dtype":"U8","shape":[-2,-1],"data_offsets":[0,2]}})", 2,
     R"(tensor "a", shape: expected an array of non-negative integers, found "-2")"},
    {"negative zero", R"({"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}})", 0, R"(found "-0")"},
    {"real dimension", R"({"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})", 2, R"(found "2.0")"},
    {"text dimension", R"({"a":{"dtype":"U8","shape":["2"],"data_offsets":[0,2]}})", 2, "found a string"},
    {"null dimension", R"({"a":{"dtype":"U8","shape":[null],"data_offsets":[0,2]}})", 2, "found null"},
    {"boolean shape", R"({"a":{"dtype":"U8","shape":true,"data_offsets":[0,2]}})", 2, "found true or false"},
    {"shape number", R"({"a":{"dtype":"U8","shape":2,"data_offsets":[0,2]}})", 2, "found a number"},
    {"shape object", R"({"a":{"dtype":"U8","shape":{},"data_offsets":[0,2]}})", 2, "found an object"},
    {"too many dimensions", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
     "array too large"},
    {"dtype unknown", R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,2]}})", 2,
     R"(tensor "a": unknown dtype "F4"; known are F64, F32, F16, BF16, F8_E4M3)"},
    {"dtype lower case", R"({"a":{"dtype":"f32","shape":[],"data_offsets":[0,4]}})", 4, R"(unknown dtype "f32")"},
    {"dtype number", R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,2]}})", 2, R"(tensor "a", dtype: expected a string)"},
    {"three offsets", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2,2]}})", 2, "data_offsets has 3 entries, expected 2"},
    {"no offsets", R"({"a":{"dtype":"U8","shape":[2]}})", 2, R"(tensor "a" has no data_offsets)"},
    {"no dtype", R"({"a":{"shape":[2],"data_offsets":[0,2]}})", 2, R"(tensor "a" has no dtype)"},
    {"no shape", R"({"a":{"dtype":"U8","data_offsets":[0,2]}})", 2, R"(tensor "a" has no shape)"},
    {"unknown field", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"stride":[1]}})", 2,
     R"(tensor "a" has the unknown field "stride")"},
    {"field twice", R"({"a":{"dtype":"U8","shape":[2],"shape":[2],"data_offsets":[0,2]}})", 2, R"(tensor "a" has shape twice)"},
    {"name twice", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
     R"(tensor "a" appears twice)"},
    {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ appears twice"},
    {"metadata key twice", R"({"__metadata__":{"a":"1","a":"1"}})", 0, R"(__metadata__ has the key "a" twice)"},
    {"metadata number", R"({"__metadata__":{"a":1}})", 0, R"(__metadata__ key "a": expected a string, found a number)"},
    {"metadata text", R"({"__metadata__":"pt"})", 0, "expected an object"},
    {"tensor is an array", R"({"a":[1]})", 0, R"(entry "a": expected an object with dtype, shape and data_offsets, found an array)"},
    {"nested too deep", R"({"a":{"dtype":"U8","shape":[[[[2]]]],"data_offsets":[0,2]}})", 2, "found an array"},
    {"array at top", "[]", 0, "the safetensors header begins with \"[\", expected {"},
    {"leading blank", " {}", 0, "the safetensors header begins with \" \", expected {"},
    {"no header", "", 0, "the safetensors header begins with \"\", expected {"},
    {"not JSON", R"({"a":{"dtype":"U8",})", 0, "not valid JSON at byte"},
    {"unfinished", R"({"a":{"dtype":"U8","shape":[2])", 0, R"(near the key "shape")"},
    {"two documents", "{}{}", 0, "not valid JSON at byte 2 of 4"},
    {"invalid UTF-8", "{\"\xff\":{}}", 0, "not valid JSON"},
    {"comment", "{/* */}", 0, "not valid JSON"},
};
// clang-format on

TEST(SafetensorsHeader, EveryMalformedKindIsRefusedByName) {
  for (const Malformed& malformed : kMalformed) {
    EXPECT_THAT(ErrorOf(FileWith(malformed.json, malformed.payload_bytes)), HasSubstr(malformed.error))
        << malformed.name;
  }
}

TEST(SafetensorsHeader, LengthIsCheckedBeforeItIsUsed) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("0 bytes found"));
  EXPECT_THAT(ErrorOf(std::string(7, '\0')), HasSubstr("7 bytes found"));
  EXPECT_THAT(ErrorOf(LengthField(kMaxHeaderBytes + 1) + "{}"),
              HasSubstr("header length is 100000001 bytes"));
  EXPECT_THAT(ErrorOf(LengthField(~uint64_t{0}) + "{}"),
              HasSubstr("header length is 18446744073709551615 bytes"));
  EXPECT_THAT(ErrorOf(LengthField(kMaxHeaderBytes) + "{}"),
              HasSubstr("truncated inside its header: 10 bytes found"));
  // A prefix shorter than the header is not read past its end.
  const std::string file = FileWith(kTwoTensors, 11);
  EXPECT_FALSE(ParseSafetensorsHeader(AsBytes(file).first(20), file.size()).ok());
}

TEST(SafetensorsHeader, OverlongNamesAreRefused) {
  const std::string entry = R"(":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})";
  EXPECT_TRUE(Parse(FileWith("{\"" + std::string(kMaxTensorNameBytes, 'n') + entry, 1)).ok());
  EXPECT_THAT(ErrorOf(FileWith("{\"" + std::string(kMaxTensorNameBytes + 1, 'n') + entry, 1)),
              HasSubstr("key too large"));
}

TEST(SafetensorsHeader, HostileNamesCannotFloodOrSteerATerminal) {
  const std::string name = "\\u001b[2J" + std::string(900, 'n');
  const std::string error =
      ErrorOf(FileWith("{\"" + name + R"(":{"dtype":"X","shape":[],"data_offsets":[0,1]}})", 1));
  EXPECT_THAT(error, HasSubstr("\\u001b[2J"));
  EXPECT_LT(error.size(), 400u);
}

TEST(SafetensorsHeader, TruncationAtEveryByteIsAnError) {
  const std::string file = FileWith(kTwoTensors, 11);
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THAT(ErrorOf(file.substr(0, size)), HasSubstr(std::to_string(size) + " bytes found")) << size;
  }
}

// Whatever a header says, what was accepted covers the payload exactly.
void ExpectConsistent(const SafetensorsHeader& header, uint64_t file_bytes) {
  uint64_t end = 0;
  for (const TensorInfo& tensor : header.tensors) {
    ASSERT_EQ(tensor.begin, end);
    end = tensor.end;
    const auto bytes = TensorBytes(tensor.dtype, tensor.shape);
    ASSERT_TRUE(bytes.ok());
    ASSERT_EQ(tensor.end - tensor.begin, *bytes);
  }
  ASSERT_EQ(header.payload_offset + end, file_bytes);
}

TEST(SafetensorsHeader, AFlippedBitGivesAnErrorOrAConsistentHeader) {
  const std::string file = FileWith(kTwoTensors, 11);
  const size_t header_bits = (8 + kTwoTensors.size()) * 8;
  size_t refused = 0;
  for (size_t bit = 0; bit < header_bits; ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    const auto header = Parse(damaged);
    if (header.ok()) {
      ExpectConsistent(*header, damaged.size());
    } else {
      ++refused;
    }
  }
  // Names, metadata and blanks may change unnoticed; the structure may not.
  EXPECT_GT(refused, header_bits / 2);
}

TEST(SafetensorsHeader, EverySeedOfTheFuzzerIsJudgedAsItsNameSays) {
  const auto corpus = std::filesystem::path(MILLRACE_SOURCE_DIR) / "fuzz/corpus/safetensors_fuzz";
  size_t valid = 0;
  size_t malformed = 0;
  for (const auto& seed : std::filesystem::directory_iterator(corpus)) {
    const std::string bytes = ReadBytes(seed.path());
    const auto header = Parse(bytes);
    const bool should_parse = seed.path().filename().string().starts_with("valid-");
    EXPECT_EQ(header.ok(), should_parse) << seed.path();
    ++(should_parse ? valid : malformed);
  }
  EXPECT_GE(valid, 4u);
  EXPECT_GE(malformed, std::size(kMalformed));
}

TEST(SafetensorsFile, GivesTheBytesOfEachTensor) {
  const ScratchDir dir;
  auto opened = SafetensorsFile::Open(dir.Write("two.safetensors", FileWith(kTwoTensors, 11)));
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const SafetensorsFile file = std::move(opened).value();
  EXPECT_EQ(file.path(), dir.path() / "two.safetensors");
  const TensorInfo* b = file.Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b, &file.tensors()[1]);
  const std::span<const std::byte> bytes = file.Bytes(*b);
  ASSERT_EQ(bytes.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(std::to_integer<size_t>(bytes[i]), 3 + i);
  EXPECT_EQ(file.Find("c"), nullptr);
  EXPECT_EQ(file.Find("__metadata__"), nullptr);
}

TEST(SafetensorsFile, ViewsSurviveAMove) {
  const ScratchDir dir;
  auto opened = SafetensorsFile::Open(dir.Write("two.safetensors", FileWith(kTwoTensors, 11)));
  ASSERT_TRUE(opened.ok());
  const TensorInfo* a = opened->Find("a");
  const std::byte* data = opened->Bytes(*a).data();
  const SafetensorsFile moved = std::move(opened).value();
  EXPECT_EQ(moved.Find("a"), a);
  EXPECT_EQ(moved.Bytes(*a).data(), data);
}

TEST(SafetensorsFile, ErrorsCarryThePathAndTheSizes) {
  const ScratchDir dir;
  const std::string whole = FileWith(kTwoTensors, 11);
  const auto path = dir.Write("short.safetensors", std::string_view(whole).substr(0, whole.size() - 1));
  const auto truncated = SafetensorsFile::Open(path);
  ASSERT_FALSE(truncated.ok());
  EXPECT_EQ(truncated.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(truncated.error().message(), HasSubstr(path.string()));
  EXPECT_THAT(truncated.error().message(), HasSubstr(std::to_string(whole.size() - 1) + " bytes found, " +
                                                     std::to_string(whole.size()) + " expected"));

  const auto empty = SafetensorsFile::Open(dir.Write("empty", ""));
  ASSERT_FALSE(empty.ok());
  EXPECT_THAT(empty.error().message(), HasSubstr("0 bytes found"));

  const auto missing = SafetensorsFile::Open(dir.path() / "missing");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("missing"));

  const auto directory = SafetensorsFile::Open(dir.path());
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().code(), ErrorCode::kIo);
  EXPECT_THAT(directory.error().message(), HasSubstr("not a regular file"));
}

TEST(SafetensorsFile, TheMiniCheckpointOpens) {
  size_t tensors = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MILLRACE_SOURCE_DIR "/models/mini")) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = SafetensorsFile::Open(entry.path());
    ASSERT_TRUE(file.ok()) << file.error().message();
    tensors += file->tensors().size();
  }
  EXPECT_EQ(tensors, 664u);
}

TEST(DType, NamesAndSizesAgreeWithTheFormat) {
  for (auto [name, bytes] : {std::pair("F64", 8u),
                             {"F32", 4u},
                             {"F16", 2u},
                             {"BF16", 2u},
                             {"F8_E4M3", 1u},
                             {"F8_E8M0", 1u},
                             {"I64", 8u},
                             {"I32", 4u},
                             {"I16", 2u},
                             {"I8", 1u},
                             {"U8", 1u},
                             {"BOOL", 1u}}) {
    const auto dtype = ParseDType(name);
    ASSERT_TRUE(dtype.ok()) << name;
    EXPECT_EQ(DTypeName(*dtype), name);
    EXPECT_EQ(DTypeBytes(*dtype), bytes);
  }
}

TEST(TensorBytes, ChecksTheProduct) {
  const auto bytes = [](DType dtype, std::vector<int64_t> shape) { return TensorBytes(dtype, shape); };
  EXPECT_EQ(*bytes(DType::kF32, {1280, 5120}), 1280u * 5120 * 4);
  EXPECT_EQ(*bytes(DType::kF32, {}), 4u);
  EXPECT_EQ(*bytes(DType::kF32, {int64_t{1} << 62, int64_t{1} << 62, 0}), 0u);
  EXPECT_EQ(*bytes(DType::kU8, {INT64_MAX}), uint64_t{INT64_MAX});
  EXPECT_FALSE(bytes(DType::kF32, {INT64_MAX}).ok());
  EXPECT_FALSE(bytes(DType::kF32, {-1}).ok());
}

}  // namespace
}  // namespace millrace::formats
