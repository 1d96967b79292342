#pragma once

// Gradients on their way from the device of a model to host memory, while its backward pass goes on.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <deque>
#include <vector>

namespace lockstep::parallel {

/// Copies on a stream of its own. Used by one thread at a time; the one that waits has the device's current stream of
/// the pass. Memory that is not page-locked makes each copy wait for itself.
class GradientCopies {
 public:
  explicit GradientCopies(at::Device device);
  /// Waits.
  ~GradientCopies();
  GradientCopies(const GradientCopies&) = delete;
  GradientCopies& operator=(const GradientCopies&) = delete;

  /// Copies `gradient`, which the current stream makes, to `to`, which must outlive the copy.
  void start(const at::Tensor& to, const at::Tensor& gradient);

  /// Behind it all of them are there, and whatever else the current stream had to do is done.
  void wait();

 private:
  struct Copy {
    at::Tensor to;
    at::Tensor gradient;
  };
  /// Kept until they are done, since the gradients' memory is the current stream's.
  struct Queued {
    std::vector<Copy> copies;
    c10::Event done;
  };
  void queue();

  const at::Device device_;
  const c10::Stream stream_;
  std::vector<Copy> gathered_;  ///< to be queued together: one event for all of them
  std::size_t bytes_ = 0;       ///< of those
  std::deque<Queued> queued_;
};

}  // namespace lockstep::parallel
