#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "formats/safetensors.h"
#include "model/checkpoint_index.h"
#include "model/synthetic_checkpoint.h"

// Checkpoints for tests: the tiny preset, and copies of it to damage.

namespace millrace::model {

// A directory that is removed with the object.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string path = (std::filesystem::temp_directory_path() / "millrace_test_XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) ADD_FAILURE() << "cannot make a directory like " << path;
    path_ = path;
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void WriteAll(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// The tiny checkpoint of seed 1, made once.
inline const std::filesystem::path& TinyCheckpoint() {
  static const ScratchDirectory dir;
  static const bool made = [] {
    ThreadPool pool(1);
    const auto summary = WriteSyntheticCheckpoint(
        {.preset = SyntheticPreset::kTiny, .seed = 1, .dir = dir.path(), .overwrite = false}, pool);
    if (!summary.ok()) ADD_FAILURE() << summary.error().message();
    return summary.ok();
  }();
  EXPECT_TRUE(made);
  return dir.path();
}

struct EditableTensor {
  formats::TensorInfo info;
  std::vector<std::byte> bytes;
};

// A copy of the tiny checkpoint whose index and shards can be rewritten.
class DamagedCheckpoint {
 public:
  DamagedCheckpoint() {
    std::filesystem::copy(TinyCheckpoint(), dir_.path(), std::filesystem::copy_options::recursive);
    auto index = ReadCheckpointIndex(dir_.path());
    EXPECT_TRUE(index.ok());
    index_ = std::move(index).value();
  }

  const std::filesystem::path& path() const { return dir_.path(); }

  // The file that the undamaged index names; "" when it does not name the tensor.
  std::string ShardOf(const std::string& tensor) const {
    for (const auto& [name, shard] : index_.weight_map)
      if (name == tensor) return shard;
    return "";
  }

  std::vector<EditableTensor> ReadShard(const std::string& shard) const {
    std::vector<EditableTensor> tensors;
    auto file = formats::SafetensorsFile::Open(path() / shard);
    EXPECT_TRUE(file.ok()) << file.error().message();
    for (const formats::TensorInfo& info : file->tensors()) {
      const auto bytes = file->Bytes(info);
      tensors.push_back({info, {bytes.begin(), bytes.end()}});
    }
    return tensors;
  }

  void WriteShard(const std::string& shard, const std::vector<EditableTensor>& tensors) {
    std::vector<formats::TensorInfo> infos;
    for (const EditableTensor& tensor : tensors) infos.push_back(tensor.info);
    auto writer = formats::SafetensorsWriter::Create(path() / shard, infos);
    ASSERT_TRUE(writer.ok()) << writer.error().message();
    for (const EditableTensor& tensor : tensors) ASSERT_TRUE(writer->Append(tensor.bytes).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }

  // Calls edit(EditableTensor&) on one tensor of its shard.
  template <typename Edit>
  void EditTensor(const std::string& tensor, Edit edit) {
    const std::string shard = ShardOf(tensor);
    std::vector<EditableTensor> tensors = ReadShard(shard);
    const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const EditableTensor& candidate) {
      return candidate.info.name == tensor;
    });
    ASSERT_NE(at, tensors.end()) << tensor;
    edit(*at);
    WriteShard(shard, tensors);
  }

  // Leaves the index as it is.
  void RemoveFromShard(const std::string& tensor) {
    const std::string shard = ShardOf(tensor);
    std::vector<EditableTensor> tensors = ReadShard(shard);
    std::erase_if(tensors, [&](const EditableTensor& candidate) { return candidate.info.name == tensor; });
    WriteShard(shard, tensors);
  }

  void AddToShard(const std::string& shard, const std::string& tensor, formats::DType dtype,
                  std::vector<int64_t> shape) {
    std::vector<EditableTensor> tensors = ReadShard(shard);
    size_t bytes = formats::DTypeBytes(dtype);
    for (const int64_t dim : shape) bytes *= static_cast<size_t>(dim);
    tensors.push_back(
        {{.name = tensor, .dtype = dtype, .shape = std::move(shape)}, std::vector<std::byte>(bytes)});
    WriteShard(shard, tensors);
  }

  CheckpointIndex& index() { return index_; }
  void RemoveFromIndex(const std::string& tensor) {
    std::erase_if(index_.weight_map, [&](const auto& entry) { return entry.first == tensor; });
  }
  void WriteIndex() { WriteAll(path() / kIndexFileName, WriteCheckpointIndex(index_)); }

  // Replaces the first occurrence of `from` in config.json, which must be there.
  void EditConfig(const std::string& from, const std::string& to) {
    std::string text = ReadAll(path() / "config.json");
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    WriteAll(path() / "config.json", text.replace(at, from.size(), to));
  }

 private:
  ScratchDirectory dir_;
  CheckpointIndex index_;
};

}  // namespace millrace::model
