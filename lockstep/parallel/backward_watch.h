#pragma once

// Whether the backward passes that reach our parameters run to their end.
//
// Autograd calls back at the end of a pass, and destroys the callback unused where an exception ended it. A pass may
// run within another one (from a hook); each is watched for itself.

#include <memory>

namespace lockstep::parallel {

class BackwardWatch {
 public:
  BackwardWatch();

  /// For the gradient hook: watches the pass that runs it, at two small allocations a pass. Error when that is a new
  /// one and an earlier one broke.
  void enter();

  /// Error, beginning with `who`, when a watched pass ended by an exception since forget().
  void require_whole(const char* who) const;

  /// Whatever a broken pass left behind is gone.
  void forget();

 private:
  struct Passes;
  struct End;
  std::shared_ptr<Passes> passes_;  ///< shared with passes that may end after this object
};

}  // namespace lockstep::parallel
