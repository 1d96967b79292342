#include "lockstep/comm/stand_ins/recording_group.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/comm/messages.h"

namespace lockstep::comm {
namespace {

RecordedCall recorded(const char* name, const at::Tensor& tensor) {
  if (!tensor.defined()) return {.name = name};
  return {.name = name, .dtype = tensor.scalar_type(), .sizes = tensor.sizes().vec()};
}

class RecordedMessages final : public Messages {
 public:
  RecordedMessages(Messages& messages, std::function<void(const Message&)> record)
      : messages_(messages), record_(std::move(record)) {}
  Message* next() override {
    Message* const message = messages_.next();
    if (message != nullptr) record_(*message);
    return message;
  }
  void moved(Message& message) override { messages_.moved(message); }

 private:
  Messages& messages_;
  const std::function<void(const Message&)> record_;
};

}  // namespace

RecordingGroup::RecordingGroup(std::shared_ptr<Group> inner)
    : RecordingGroup(std::move(inner), std::make_shared<List>(), {}) {}

RecordingGroup::RecordingGroup(std::shared_ptr<Group> inner, std::shared_ptr<List> list, std::vector<int> ranks)
    : WrappedGroup(std::move(inner)), list_(std::move(list)), ranks_(std::move(ranks)) {}

std::vector<RecordedCall> RecordingGroup::calls() const {
  const std::lock_guard lock(list_->mutex);
  return list_->calls;
}

int RecordingGroup::count(const std::string& name) const {
  const std::vector<RecordedCall> all = calls();
  return int(std::count_if(all.begin(), all.end(), [&](const RecordedCall& call) { return call.name == name; }));
}

void RecordingGroup::clear_calls() {
  const std::lock_guard lock(list_->mutex);
  list_->calls.clear();
}

void RecordingGroup::record(RecordedCall call) {
  call.group = ranks_;
  const std::lock_guard lock(list_->mutex);
  list_->calls.push_back(std::move(call));
}

void RecordingGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  RecordedCall call = recorded("all_reduce", tensor);
  call.op = op;
  record(std::move(call));
  inner().all_reduce(tensor, op);
}

void RecordingGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  RecordedCall call = recorded("reduce_scatter", output);
  call.op = op;
  record(std::move(call));
  inner().reduce_scatter(output, input, op);
}

void RecordingGroup::broadcast(const at::Tensor& tensor, int root) {
  RecordedCall call = recorded("broadcast", tensor);
  call.root = root;
  record(std::move(call));
  inner().broadcast(tensor, root);
}

std::vector<at::Tensor> RecordingGroup::all_gather(const at::Tensor& tensor) {
  record(recorded("all_gather", tensor));
  return inner().all_gather(tensor);
}

void RecordingGroup::barrier() {
  record({.name = "barrier"});
  inner().barrier();
}

void RecordingGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  record(recorded("all_to_all", input));
  inner().all_to_all(output, input);
}

void RecordingGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  record(recorded("all_gather_into_tensor", input));
  inner().all_gather_into_tensor(output, input);
}

void RecordingGroup::carry(Messages& messages) {
  RecordedMessages recorded(messages, [this](const Message& message) {
    record({.name = message.way == Way::send ? "send" : "recv",
            .dtype = at::ScalarType(message.note.dtype),
            .sizes = {message.note.elements},
            .peer = message.peer});
  });
  inner().carry(recorded);
}

std::shared_ptr<Group> RecordingGroup::new_group(const std::vector<int>& ranks) {
  record({.name = "new_group", .ranks = ranks});
  std::shared_ptr<Group> made = inner().new_group(ranks);
  if (made == nullptr) return nullptr;
  std::vector<int> outer;
  for (const int rank : ranks) outer.push_back(ranks_.empty() ? rank : ranks_[std::size_t(rank)]);
  return std::shared_ptr<Group>(new RecordingGroup(std::move(made), list_, std::move(outer)));
}

at::Tensor RecordingGroup::shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  record({.name = "shared_empty", .dtype = dtype, .sizes = sizes.vec()});
  return inner().shared_empty(sizes, dtype);
}

}  // namespace lockstep::comm
