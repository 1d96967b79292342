#pragma once

// What a classifier took the samples of an evaluation for: counted by every rank, put together once.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::train {

/// A sample that was taken for another class.
struct WrongAnswer {
  std::int64_t sample = 0;  ///< its number in the set
  std::int64_t truth = 0, prediction = 0;
  double share = 0;     ///< what the softmax gave the prediction
  std::string file;     ///< empty: the set has none
  std::string picture;  ///< a small PNG file of it (thumbnail.h); empty: none was made

  bool operator==(const WrongAnswer&) const = default;
};

/// Of all samples, each once, whatever the number of ranks.
struct Answers {
  std::vector<std::string> classes;     ///< as many as the model has outputs; by number where nobody has named them
  std::vector<std::int64_t> confusion;  ///< [truth][prediction], row by row; empty for more than kMostInMatrix classes
  std::vector<std::int64_t> samples;    ///< of each class
  std::vector<std::int64_t> right;      ///< of these, taken for what they are
  std::vector<WrongAnswer> mistakes;    ///< the surest kMostMistakes, the surest first; of equal ones by number
};
inline constexpr std::int64_t kMostInMatrix = 100;
inline constexpr std::size_t kMostMistakes = 16;

/// The answers to this rank's batches.
class AnswerCount {
 public:
  /// Adds those of a batch: float [B, classes] and int64 [B], whose samples are numbered from `first` on.
  /// UsageError that names the sample whose target is none of 0 to classes - 1.
  void add(const at::Tensor& logits, const at::Tensor& target, std::int64_t first);

  /// Collective: those of all ranks, on all ranks, without names of classes and files. `classes`: how many there
  /// are, the same on all ranks.
  Answers of_all(comm::Group& group, std::int64_t classes) const;

 private:
  struct Cell {
    std::int64_t truth, prediction;
  };
  std::vector<Cell> cells_;  // a sample each
  std::vector<WrongAnswer> mistakes_;
};

}  // namespace lockstep::train
