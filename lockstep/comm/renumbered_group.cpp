#include "lockstep/comm/renumbered_group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "lockstep/comm/checks.h"
#include "lockstep/comm/messages.h"
#include "lockstep/comm/wrapped_group.h"

namespace lockstep::comm {
namespace {

std::vector<int> inverse_of(const std::vector<int>& numbers) {
  std::vector<int> inverse(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) inverse[std::size_t(numbers[i])] = int(i);
  return inverse;
}

// Of a tensor of equal parts, the part numbers[i] in the i-th place.
at::Tensor reordered(const at::Tensor& tensor, const std::vector<int>& numbers) {
  const std::vector<at::Tensor> parts = parts_of(tensor.detach().contiguous(), int(numbers.size()));
  std::vector<at::Tensor> in_order;
  for (const int number : numbers) in_order.push_back(parts[std::size_t(number)].reshape({-1}));
  return at::cat(in_order);
}

// Messages under the numbers of the inner group. The caller's own stay as they are.
class RenumberedMessages final : public Messages {
 public:
  RenumberedMessages(Messages& messages, const std::vector<int>& inner_of) : messages_(messages), inner_of_(inner_of) {}

  Message* next() override {
    Message* const message = messages_.next();
    if (message == nullptr) return nullptr;
    under_way_.emplace_back(*message, message);
    under_way_.back().first.peer = inner_of_[std::size_t(message->peer)];
    return &under_way_.back().first;
  }
  void moved(Message& message) override {
    const auto found = std::find_if(under_way_.begin(), under_way_.end(),
                                    [&](const auto& one) { return &one.first == &message && one.second != nullptr; });
    messages_.moved(*std::exchange(found->second, nullptr));
  }

 private:
  Messages& messages_;
  const std::vector<int>& inner_of_;
  std::deque<std::pair<Message, Message*>> under_way_;  // stay where they are; null: moved
};

class RenumberedGroup final : public Group {
 public:
  RenumberedGroup(std::shared_ptr<Group> inner, std::vector<int> inner_of)
      : Group(topology_of(*inner, inner_of)),
        inner_(std::move(inner)),
        inner_of_(std::move(inner_of)),
        own_of_(inverse_of(inner_of_)) {}

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override { inner_->all_reduce(tensor, op); }
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    check_reduce_scatter(output, input, op, rank(), size());
    inner_->reduce_scatter(output, reordered(input, own_of_), op);
  }
  void broadcast(const at::Tensor& tensor, int root) override {
    check_root(root, size());
    inner_->broadcast(tensor, inner_of_[std::size_t(root)]);
  }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    std::vector<at::Tensor> gathered = inner_->all_gather(tensor), in_order;
    for (const int rank : inner_of_) in_order.push_back(std::move(gathered[std::size_t(rank)]));
    return in_order;
  }
  void barrier() override { inner_->barrier(); }
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override {
    check_all_to_all(output, input, size());
    const at::Tensor sent = reordered(input, own_of_);
    const at::Tensor got = at::empty_like(sent);
    inner_->all_to_all(got, sent);
    output.detach().copy_(reordered(got, inner_of_).view(output.sizes()));
  }
  void carry(Messages& messages) override {
    RenumberedMessages renumbered(messages, inner_of_);
    inner_->carry(renumbered);
  }
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks) override {
    check_ranks(ranks, size());
    std::vector<int> wanted, inner_of;
    for (const int rank : ranks) wanted.push_back(inner_of_[std::size_t(rank)]);
    std::vector<int> rising = wanted;
    std::sort(rising.begin(), rising.end());
    for (const int rank : wanted)
      inner_of.push_back(int(std::lower_bound(rising.begin(), rising.end(), rank) - rising.begin()));
    std::shared_ptr<Group> made = inner_->new_group(rising);
    return made == nullptr ? nullptr : renumbered(std::move(made), std::move(inner_of));
  }
  at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    return inner_->shared_empty(sizes, dtype);
  }
  CallLog* call_log() override { return inner_->call_log(); }
  bool abort(const std::string& cause, int exit_code) override { return inner_->abort(cause, exit_code); }

 private:
  static Topology topology_of(const Group& inner, const std::vector<int>& inner_of) {
    Topology topology = inner.topology();
    topology.rank = inverse_of(inner_of)[std::size_t(topology.rank)];
    return topology;
  }

  const std::shared_ptr<Group> inner_;
  const std::vector<int> inner_of_;
  const std::vector<int> own_of_;  // by the inner group's number of each rank, this one's
};

}  // namespace

std::shared_ptr<Group> renumbered(std::shared_ptr<Group> inner, std::vector<int> inner_of) {
  if (std::is_sorted(inner_of.begin(), inner_of.end())) return inner;
  return std::make_shared<RenumberedGroup>(std::move(inner), std::move(inner_of));
}

}  // namespace lockstep::comm
