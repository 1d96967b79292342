#include "lockstep/parallel/hooks/top_k.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/hooks/saved_hook.h"

namespace lockstep::parallel {

TopKState::TopKState(std::shared_ptr<comm::Group> process_group, TopKOptions options)
    : group_(std::move(process_group)), options_(options) {
  if (!(options_.ratio > 0 && options_.ratio <= 1))
    throw UsageError("top-k: ratio is " + std::to_string(options_.ratio) + "; more than 0, at most 1");
  if (options_.start_iter < 0)
    throw UsageError("top-k: start_iter is " + std::to_string(options_.start_iter) + "; at least 0");
}

std::map<std::string, at::Tensor> TopKState::state_dict() const {
  SavedHook saved;
  saved.put("iter", iter_);
  saved.put("error_dict", error_);
  return saved.tensors();
}

void TopKState::load_state_dict(const std::map<std::string, at::Tensor>& saved) {
  SavedHook from("top-k", saved);
  TopKState read = *this;  // nothing is half read
  from.get("iter", read.iter_);
  from.get("error_dict", read.error_);
  from.end();
  *this = std::move(read);
}

GradFuture topk_hook(TopKState& state, GradBucket& bucket) {
  const at::Tensor input = bucket.buffer();
  comm::Group& group = *state.group_;
  const bool whole = state.iter_ < state.options_.start_iter;
  if (bucket.is_last()) ++state.iter_;
  if (whole) {
    group.all_reduce(input, comm::ReduceOp::mean);
    return input;
  }
  if (const auto left = state.error_.find(bucket.index()); left != state.error_.end()) {
    if (left->second.numel() != input.numel())
      throw UsageError("top-k: the state has an error of " + std::to_string(left->second.numel()) +
                       " elements for bucket " + std::to_string(bucket.index()) + ", which has " +
                       std::to_string(input.numel()) + "; it is of another model");
    input.add_(left->second);
  }
  const auto count = std::max<std::int64_t>(1, std::int64_t(std::ceil(state.options_.ratio * double(input.numel()))));
  const at::Tensor chosen = std::get<1>(input.abs().topk(std::min(count, input.numel())));
  const at::Tensor values = input.index_select(0, chosen);
  if (state.options_.use_error_feedback) state.error_[bucket.index()] = input.clone().index_fill_(0, chosen, 0);
  const std::vector<at::Tensor> all_values = group.all_gather(values), all_chosen = group.all_gather(chosen);
  input.zero_();
  for (std::size_t rank = 0; rank < all_values.size(); ++rank)  // in one order: the same bits everywhere
    input.index_add_(0, all_chosen[rank], all_values[rank]);
  return input.div_(group.size());
}

}  // namespace lockstep::parallel
