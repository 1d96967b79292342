#pragma once

// One way to do the work that is measured. All ranks hold the same contenders in the same order.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep::bench {

/// A rank's gradients of one step, in the order of the shapes. Contenders take them into their
/// own memory before each call, so that none starts from a warm cache or from used-up values.
using Gradients = std::vector<at::Tensor>;

class Contender {
 public:
  virtual ~Contender() = default;
  /// Unique in a run.
  virtual std::string name() const = 0;
  /// What a row of it is: ours, installed, tuned, floor or lever (benchmarks/support/rows.py).
  virtual std::string kind() const = 0;
  /// Bytes that all ranks together must read and write in one call; 0 when not counted.
  virtual double bytes() const { return 0; }
  /// The page size its memory really has.
  virtual std::string page_size() const { return "4 KiB"; }
  /// Not timed.
  virtual void prepare(const Gradients& gradients) = 0;
  /// Timed. Collective.
  virtual void run() = 0;
};

}  // namespace lockstep::bench
