#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"

// For tests only: the unit goldens of golden/v41 (its README says how they were made and how close to come).
namespace millrace::kernels {

inline std::filesystem::path UnitGoldenPath(std::string_view name) {
  return std::filesystem::path(MILLRACE_SHARED_DIR) / "golden/v41/units" /
         (std::string(name) + ".safetensors");
}

class UnitGolden {
 public:
  // Throws with the reason if the file exists but cannot be read.
  explicit UnitGolden(std::string_view name) : file_(Open(UnitGoldenPath(name))) {}

  // The elements of a tensor, row-major. Throws if it is absent or its elements have another size.
  template <typename T>
  std::vector<T> Get(std::string_view tensor) const {
    const formats::TensorInfo* info = file_.Find(tensor);
    if (info == nullptr) throw std::runtime_error(file_.path().string() + " lacks " + std::string(tensor));
    if (formats::DTypeBytes(info->dtype) != sizeof(T))
      throw std::runtime_error(std::string(tensor) + " has elements of another size");
    const std::span<const std::byte> bytes = file_.Bytes(*info);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  static formats::SafetensorsFile Open(const std::filesystem::path& path) {
    Result<formats::SafetensorsFile> file = formats::SafetensorsFile::Open(path);
    if (!file.ok()) throw std::runtime_error(file.error().message());
    return std::move(file).value();
  }

  formats::SafetensorsFile file_;
};

}  // namespace millrace::kernels

// Leaves the test as skipped, with the path, where the shared goldens are not checked out.
#define MILLRACE_SKIP_WITHOUT_GOLDEN(name)                                 \
  if (!std::filesystem::exists(::millrace::kernels::UnitGoldenPath(name))) \
  GTEST_SKIP() << "no golden at " << ::millrace::kernels::UnitGoldenPath(name)
