#pragma once

// What one optimizer step does to one weight, for each kind of optimizer. A rule is a value: the numbers of its
// formula, all that depends on the step already folded in; the same on all ranks. Each has a header of its own in
// rules/, with the options as a user gives them, the formula, and how the one becomes the other; this is the list of
// them.
//
// The operations, their order and where a product and a sum are fused are those of Python's
// torch.optim (2.11, single-tensor implementation on CPU with AVX2 or AVX-512), so that the bits
// are PyTorch's (tests/parity/optimizer_test.py). The one exception is the square root: ours
// is correctly rounded; PyTorch's is MKL's, off by up to a unit in the last place.
//
// What a header in rules/ has, for its options `O` and its rule `R`:
//   O::fields()                    the options and their names
//   void check(const O&)           UsageError naming the value when one is out of its range
//   R rule_for(const O&, step)     the rule of step `step`, from 1
//   int R::arrays()                arrays of state that it needs, at most kMaxStateArrays; no matter of the step
//   int R::layout()                where their number does not tell what they are: a number that does
//   V R::update(w, g, state)       the new weight; state.get(k), state.set(k, x) are this weight's in array k, which
//                                  is 0 before the first step. V is a vector of floats (vector.h).
//   R::maximize                    g is the mean gradient with its sign turned
//
// A rule whose step depends on norms over the parameter has, too:
//   V R::measured(w, g, state)     what has its norm taken beside w
//   R::set_norms(weights, other)   before update(): the norms of w and of that
// and, where measured() does all but the last operation of update(), and sets the state as that does:
//   V R::moved(w, measured)        the new weight

#include <variant>

#include "lockstep/optim/rules/adadelta.h"
#include "lockstep/optim/rules/adagrad.h"
#include "lockstep/optim/rules/adam.h"
#include "lockstep/optim/rules/keep.h"
#include "lockstep/optim/rules/lamb.h"
#include "lockstep/optim/rules/lars.h"
#include "lockstep/optim/rules/lion.h"
#include "lockstep/optim/rules/nadam.h"
#include "lockstep/optim/rules/radam.h"
#include "lockstep/optim/rules/rmsprop.h"
#include "lockstep/optim/rules/sgd.h"

namespace lockstep::optim {

using Rule = std::variant<SGDRule, AdamRule, AdadeltaRule, AdagradRule, LionRule, NAdamRule, RAdamRule, RMSpropRule,
                          KeepRule, LARSRule, LAMBRule>;

template <class R>
concept NeedsNorms = requires(R rule) {
  rule.set_norms(1.0, 1.0);
};

/// Its step can be taken in two halves: begin_update() and finish_update().
template <class R>
concept MovesByMeasured = NeedsNorms<R> && requires(R rule, float x) {
  rule.moved(x, x);
};

}  // namespace lockstep::optim
