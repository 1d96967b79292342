#pragma once

// Gradients of sums over samples or tokens of which ranks have unequal numbers, where an optimizer of torch::optim
// trains. With one of ours: optimizer.step({.denominator = tokens}).
//
//   ddp(batch.data) ... loss of all tokens, added up, .backward();
//   lockstep::scale_gradients(ddp, {.denominator = tokens});  // this rank's
//   optimizer.step();

namespace lockstep::parallel {

class Engine;

struct GradientScale {
  /// What the gradients of the whole job are divided by: samples or tokens, this rank's. Those of all ranks are added;
  /// a rank may have none, and then runs backward on a loss that is 0.
  double denominator = 0;
};

/// Behind the last backward of a step, which has averaged: .grad() become the sum over the ranks, divided by the sum of
/// the denominators. Before clipping; before or behind unscale_(). Collective. Error on all ranks, which leaves the
/// gradients as they are, where a denominator is below 0 or not finite, or all add up to 0. UsageError with an
/// optimizer of ours, and within join(), where ranks without inputs do not take part.
void scale_gradients(Engine& ddp, const GradientScale& scale);

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::GradientScale;
using parallel::scale_gradients;
}  // namespace lockstep
