#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "real_layer/engram_hash64.h"
#include "real_layer/recording.h"
#include "real_layer/reference64.h"

namespace millrace::real_layer {

// What was compared, over all layers and sequences.
class Report {
 public:
  struct Line {
    size_t compared = 0;        // numbers (of sets: members)
    double worst = 0;           // largest absolute difference
    double worst_of_error = 0;  // largest difference as a share of the reference's error
    size_t flipped = 0;         // quantised: on a neighbouring grid point; integers: different
  };

  Line& operator[](const std::string& module) { return lines_[module]; }
  const std::map<std::string, Line>& lines() const { return lines_; }
  void Print(const std::string& title) const;

 private:
  std::map<std::string, Line> lines_;
};

// Checks a recorded sequence module by module: every module of the reference gets the recorded inputs of that
// module, and its results must be the recorded outputs. Failures are those of the running test.
//
//   floats      within `tolerance` times the reference's error
//   quantised   equal but for one number in 10^4, each on a neighbouring grid point
//   integers    identical: hash ids; experts, selected entries and candidate blocks, chosen from the recorded
//               scores
//
// Modules that read a lot of weights are checked for the positions of `sample` only, all others for every
// token.
class ModuleCheck {
 public:
  ModuleCheck(const Reference64& reference, const Recording& recording, std::vector<int64_t> sample,
              double tolerance, Report& report);

  void CheckHashIds(const EngramHash64& hash);
  void CheckLayer(int l);
  void CheckOutput();

 private:
  using Positions = std::vector<int64_t>;

  std::string Name(int l, const std::string& module) const;
  // Recorded rows at `positions` (or entries), as exact input.
  Rows64 Take(const std::string& name, const Positions& positions) const;
  std::vector<std::vector<int64_t>> TakeIntegers(const std::string& name, const Positions& positions) const;
  // Streams and collapse weights that enter a site of layer l.
  Rows64 StreamsInto(int l, const std::string& site, const Positions& positions) const;
  Rows64 StreamsIntoLayer(int l, const Positions& positions) const;
  Rows64 PreInto(int l, const std::string& site, const Positions& positions) const;
  // Entries that token `position` of layer l may choose from.
  int64_t Visible(int l, int64_t position) const { return (position + 1) / reference_.ratio(l); }
  // The recorded selection of the token, ascending; -1 pads are left out.
  Positions Selected(int source, int64_t position) const;
  Positions Candidates(int64_t position) const;

  void CheckEngram(int l);
  void CheckSite(int l, const std::string& site, const std::string& streams_after);
  void CheckWindow(int l);
  void CheckEntries(int l);
  void CheckIndexScores(int l);
  void CheckSelection(int l);
  void CheckAttention(int l);
  void CheckRouter(int l);
  void CheckExperts(int l);

  void Compare(int l, const std::string& module, const Rows64& want, const Positions& positions);
  void CompareQuantised(int l, const std::string& module, const Quantised& want, const Positions& positions);
  void CompareIntegers(int l, const std::string& module, const std::vector<int64_t>& got,
                       const std::vector<int64_t>& want, int64_t position);

  const Reference64& reference_;
  const Recording& recording_;
  Positions sample_;
  Positions all_;
  std::vector<Positions> slices_;  // all positions, some at a time
  double tolerance_;
  Report& report_;
};

}  // namespace millrace::real_layer
