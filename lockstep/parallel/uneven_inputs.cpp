#include "lockstep/parallel/uneven_inputs.h"

#include <ATen/ops/full.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

const char* word(UnevenInputs::Pass pass) {
  return pass == UnevenInputs::Pass::forward ? "forward" : pass == UnevenInputs::Pass::backward ? "backward" : "step";
}

}  // namespace

void UnevenInputs::run(const std::function<void()>& loop) {
  try {
    loop();
  } catch (const std::exception& error) {
    if (!ended_) group_->abort(error.what(), exit_code(error));
    throw;
  }
}

UnevenInputs::Pass UnevenInputs::announce(Pass mine) {
  const std::vector<at::Tensor> all = group_->all_gather(at::full({1}, std::int64_t(mine), at::kLong));
  Pass others = Pass::none;
  int left = 0, first = 0, without = -1;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const auto pass = Pass(all[std::size_t(rank)].item<std::int64_t>());
    if (pass == Pass::none) {
      without = rank;
      continue;
    }
    if (left == 0) {
      others = pass;
      first = rank;
    } else if (pass != others) {
      throw Error("join: rank " + std::to_string(first) + " begins a " + word(others) + " pass and rank " +
                  std::to_string(rank) + " a " + word(pass) + " pass; each must do the same with each of its inputs");
    }
    ++left;
    source_ = rank;
  }
  ranks_left_ = left == 0 ? ranks_left_ : left;
  if (options_.throw_on_early_termination && left > 0 && without >= 0) {
    ended_ = true;
    throw Error("join: rank " + std::to_string(without) + " has no more inputs, and throw_on_early_termination is set");
  }
  return others;
}

double UnevenInputs::correction() const {
  return options_.divide_by_initial_world_size ? 1 : double(group_->size()) / double(ranks_left_);
}

}  // namespace lockstep::parallel
