#include "rig/blas.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

namespace millrace::rig {
namespace {

constexpr const char* kLibrary = "libopenblas.so.0";

template <class Function>
Function Find(void* library, const char* symbol) {
  return reinterpret_cast<Function>(dlsym(library, symbol));
}

}  // namespace

Result<std::unique_ptr<Blas>> Blas::Load(int n_threads, std::string_view instruction_set) {
  std::unique_ptr<Blas> blas(new Blas);
  if (instruction_set == "AVX2") setenv("OPENBLAS_CORETYPE", "Haswell", 0);  // it has no other switch
  blas->library_ = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (blas->library_ == nullptr) {
    return Error(ErrorCode::kNotFound,
                 fmt::format("{} is not installed; Debian's package is libopenblas0-pthread", kLibrary));
  }
  blas->sgemm_ = Find<Sgemm>(blas->library_, "cblas_sgemm");
  const auto set_threads = Find<void (*)(int)>(blas->library_, "openblas_set_num_threads");
  const auto config = Find<const char* (*)()>(blas->library_, "openblas_get_config");
  const auto core = Find<const char* (*)()>(blas->library_, "openblas_get_corename");
  if (blas->sgemm_ == nullptr || set_threads == nullptr || config == nullptr || core == nullptr) {
    return Error(ErrorCode::kNotFound,
                 fmt::format("{} lacks cblas_sgemm or a function of its own", kLibrary));
  }
  set_threads(n_threads);
  const std::string_view text = config();
  blas->name_ = fmt::format("{}, kernel {}", text.substr(0, text.find(' ', text.find(' ') + 1)), core());
  return blas;
}

Blas::~Blas() {
  if (library_ != nullptr) dlclose(library_);
}

void Blas::MatMul(const float* a, int64_t rows, int64_t cols, const float* x, int64_t n_tokens,
                  float* y) const {
  constexpr int kRowMajor = 101;
  constexpr int kAsStored = 111;
  constexpr int kTransposed = 112;
  const auto k = static_cast<int>(cols);
  sgemm_(kRowMajor, kAsStored, kTransposed, static_cast<int>(n_tokens), static_cast<int>(rows), k, 1.0f, x, k,
         a, k, 0.0f, y, static_cast<int>(rows));
}

}  // namespace millrace::rig
