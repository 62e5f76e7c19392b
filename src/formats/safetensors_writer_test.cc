#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/safetensors.h"
#include "formats/scratch_dir.h"

namespace millrace::formats {
namespace {

using testing::HasSubstr;

std::vector<std::byte> Bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TensorInfo Tensor(std::string name, DType dtype, std::vector<int64_t> shape) {
  return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape)};
}

size_t FilesIn(const ScratchDir& dir) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir.path()), {}));
}

// Limits the size of files this process may write; the kernel then answers as for a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(SafetensorsWriter, WhatIsWrittenIsRead) {
  const ScratchDir dir;
  const auto path = dir.path() / "out.safetensors";
  const std::vector<TensorInfo> tensors = {
      Tensor("z.weight", DType::kI8, {7, 3}),    Tensor("empty", DType::kF32, {0, 4}),
      Tensor("scalar", DType::kF32, {}),         Tensor("quote\" \\ \n \u00e9 \u4e2d", DType::kBF16, {5}),
      Tensor("a.scale", DType::kF8E8M0, {1, 1}),
  };
  auto writer = SafetensorsWriter::Create(path, tensors, {{"format", "pt"}, {"note", "x\"y"}});
  ASSERT_TRUE(writer.ok()) << writer.error().message();
  std::vector<std::byte> payload;
  for (const TensorInfo& tensor : tensors) {
    const auto bytes =
        Bytes(*TensorBytes(tensor.dtype, tensor.shape), static_cast<uint32_t>(payload.size() + 1));
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  }
  // In parts that do not respect the tensors' borders.
  for (size_t at = 0; at < payload.size(); at += 4) {
    ASSERT_TRUE(
        writer->Append(std::span(payload).subspan(at, std::min<size_t>(4, payload.size() - at))).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(FilesIn(dir), 1u);

  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->header().payload_offset % 8, 0u);
  EXPECT_EQ(file->header().metadata, (Metadata{{"format", "pt"}, {"note", "x\"y"}}));
  ASSERT_EQ(file->tensors().size(), tensors.size());
  uint64_t at = 0;
  for (const TensorInfo& tensor : tensors) {
    const TensorInfo* found = file->Find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(found->begin, at);
    const auto bytes = file->Bytes(*found);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), payload.begin() + static_cast<ptrdiff_t>(at)));
    at = found->end;
  }
  EXPECT_EQ(at, payload.size());
}

TEST(SafetensorsWriter, RandomTensorListsRoundTrip) {
  const ScratchDir dir;
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<TensorInfo> tensors;
    uint64_t payload_bytes = 0;
    for (uint32_t i = 0, n = random() % 20; i < n; ++i) {
      std::vector<int64_t> shape;
      for (uint32_t d = random() % 4; d > 0; --d) shape.push_back(random() % 6);
      tensors.push_back(Tensor("t" + std::to_string(i), static_cast<DType>(random() % 12), shape));
      payload_bytes += *TensorBytes(tensors.back().dtype, shape);
    }
    const auto path = dir.path() / "round.safetensors";
    auto writer = SafetensorsWriter::Create(path, tensors);
    ASSERT_TRUE(writer.ok()) << writer.error().message();
    ASSERT_TRUE(writer->Append(Bytes(payload_bytes, random())).ok());
    ASSERT_TRUE(writer->Finish().ok());
    const auto file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().message();
    ASSERT_EQ(file->tensors().size(), tensors.size());
    for (const TensorInfo& tensor : tensors) EXPECT_EQ(file->Find(tensor.name)->shape, tensor.shape);
  }
}

TEST(SafetensorsWriter, TheSameContentGivesTheSameBytes) {
  const ScratchDir dir;
  for (const char* name : {"one", "two"}) {
    auto writer =
        SafetensorsWriter::Create(dir.path() / name, {Tensor("a", DType::kU8, {3})}, {{"format", "pt"}});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append(Bytes(3, 1)).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  EXPECT_EQ(ReadBytes(dir.path() / "one"), ReadBytes(dir.path() / "two"));
}

TEST(SafetensorsWriter, RefusesWhatAReaderWouldRefuse) {
  const ScratchDir dir;
  const auto error_of = [&dir](std::vector<TensorInfo> tensors, const Metadata& metadata = {}) {
    const auto writer = SafetensorsWriter::Create(dir.path() / "x", std::move(tensors), metadata);
    if (writer.ok()) return std::string("accepted");
    EXPECT_EQ(writer.error().code(), ErrorCode::kInvalidArgument);
    return writer.error().message();
  };
  EXPECT_THAT(error_of({Tensor("a", DType::kU8, {1}), Tensor("a", DType::kU8, {1})}),
              HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(error_of({Tensor("a", DType::kU8, {-1})}), HasSubstr("negative dimension"));
  EXPECT_THAT(error_of({Tensor("a", DType::kU8, {INT64_MAX}), Tensor("b", DType::kU8, {1})}),
              HasSubstr("63 bits"));
  EXPECT_THAT(error_of({Tensor("__metadata__", DType::kU8, {1})}), HasSubstr("__metadata__"));
  EXPECT_THAT(error_of({Tensor("\xff", DType::kU8, {1})}), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of({}, {{"k", "1"}, {"k", "2"}}), HasSubstr("\"k\" twice"));
  EXPECT_EQ(FilesIn(dir), 0u);
}

TEST(SafetensorsWriter, CountsThePayload) {
  const ScratchDir dir;
  {
    auto writer = SafetensorsWriter::Create(dir.path() / "x", {Tensor("a", DType::kU8, {4})});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append(Bytes(3, 1)).ok());
    const Status early = writer->Finish();
    ASSERT_FALSE(early.ok());
    EXPECT_THAT(early.error().message(), HasSubstr("3 payload bytes written, 4 were announced"));
    const Status beyond = writer->Append(Bytes(2, 1));
    ASSERT_FALSE(beyond.ok());
    EXPECT_THAT(beyond.error().message(), HasSubstr("has only 4"));
  }
  EXPECT_EQ(FilesIn(dir), 0u);
}

TEST(SafetensorsWriter, AnUnfinishedFileIsRemovedAndTheOldOneKept) {
  const ScratchDir dir;
  dir.Write("x", "old");
  {
    auto writer = SafetensorsWriter::Create(dir.path() / "x", {Tensor("a", DType::kU8, {4})});
    ASSERT_TRUE(writer.ok());
    SafetensorsWriter moved = std::move(writer).value();
    ASSERT_TRUE(moved.Append(Bytes(4, 1)).ok());
  }
  EXPECT_EQ(FilesIn(dir), 1u);
  EXPECT_EQ(ReadBytes(dir.path() / "x"), "old");
}

TEST(SafetensorsWriter, AFullDiskIsAnErrorThatLeavesNothingBehind) {
  const ScratchDir dir;
  {
    const FileSizeLimit limit(8192);
    auto writer = SafetensorsWriter::Create(dir.path() / "x", {Tensor("a", DType::kU8, {100'000})});
    ASSERT_TRUE(writer.ok());
    // The first write past the limit is short, the next one fails.
    const Status status = writer->Append(Bytes(100'000, 1));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kIo);
    EXPECT_THAT(status.error().message(), HasSubstr("cannot write"));
  }
  EXPECT_EQ(FilesIn(dir), 0u);
}

TEST(SafetensorsWriter, SystemErrorsNameThePath) {
  const ScratchDir dir;
  const auto no_folder = SafetensorsWriter::Create(dir.path() / "none" / "x", {});
  ASSERT_FALSE(no_folder.ok());
  EXPECT_EQ(no_folder.error().code(), ErrorCode::kIo);
  EXPECT_THAT(no_folder.error().message(), HasSubstr("none/x"));

  std::filesystem::create_directory(dir.path() / "taken");
  auto writer = SafetensorsWriter::Create(dir.path() / "taken", {});
  ASSERT_TRUE(writer.ok());
  const Status finished = writer->Finish();
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().code(), ErrorCode::kIo);
  EXPECT_EQ(FilesIn(dir), 1u);
}

}  // namespace
}  // namespace millrace::formats
