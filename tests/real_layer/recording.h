#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/forward.h"

namespace millrace::real_layer {

// One sequence as a forward pass shows it: one row for each token (for latent, index_k and compressed_kv: for
// each entry), under the goldens' names.
struct Recording {
  std::vector<TokenId> ids;  // positions 0 .. n-1
  std::map<std::string, std::vector<std::vector<float>>> floats;
  std::map<std::string, std::vector<std::vector<int64_t>>> integers;
  std::vector<int64_t> output_positions;  // of the rows of "final_norm" and "logits"
};

// The golden intermediates of the prompt "mid", with its logits.
Recording GoldenRecording(const std::filesystem::path& dir);

// Runs several sequences together and keeps what each of them showed. One thread.
class Recorder : public model::LayerTrace {
 public:
  // `forward` outlives the object. `n_sequences` recordings, empty at first.
  Recorder(model::Forward& forward, size_t n_sequences);

  // The next tokens of one of the sequences. Its logits are kept for all of them or for none.
  struct Part {
    size_t sequence = 0;
    model::SequenceState* state = nullptr;
    std::vector<TokenId> ids;
    bool logits = false;
  };
  void Run(std::vector<Part> parts);

  const Recording& sequence(size_t i) const { return recordings_[i]; }

  void OnTensor(const std::string& name, std::span<const float> values,
                std::span<const int64_t> shape) override;
  void OnIntegers(const std::string& name, std::span<const int64_t> values,
                  std::span<const int64_t> shape) override;

 private:
  // Rows of a tensor of this name that belong to one part of the running batch.
  int64_t RowsOf(const std::string& name, const Part& part) const;

  model::Forward& forward_;
  std::vector<Recording> recordings_;
  std::vector<Part> parts_;
};

}  // namespace millrace::real_layer
