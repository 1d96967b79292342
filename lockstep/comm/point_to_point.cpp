#include "lockstep/comm/point_to_point.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/host_memory.h"
#include "lockstep/comm/network/wire.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

const char* name_of(Way way) { return way == Way::send ? "send" : "recv"; }

class UnderWay final : public Messages {
 public:
  explicit UnderWay(const std::function<std::shared_ptr<Transfer>()>& next) : next_(next), first_(next_()) {}

  bool is_empty() const { return first_ == nullptr; }
  Message* next() override {
    std::shared_ptr<Transfer> transfer = first_ ? std::exchange(first_, nullptr) : next_();
    if (transfer == nullptr) return nullptr;
    transfers_.push_back(std::move(transfer));
    return &transfers_.back()->message();
  }
  void moved(Message& message) override {
    const auto found = std::find_if(transfers_.begin(), transfers_.end(),
                                    [&](const auto& transfer) { return &transfer->message() == &message; });
    const std::shared_ptr<Transfer> transfer = std::move(*found);
    transfers_.erase(found);
    try {
      transfer->finish();
    } catch (...) {
      transfer->tell(std::current_exception());
      throw;
    }
    transfer->tell(nullptr);
  }
  void fail(const std::exception_ptr& error) {
    if (first_) first_->tell(error);
    for (const std::shared_ptr<Transfer>& transfer : transfers_) transfer->tell(error);
  }

 private:
  const std::function<std::shared_ptr<Transfer>()>& next_;
  std::shared_ptr<Transfer> first_;  // a group that is over would take none
  std::vector<std::shared_ptr<Transfer>> transfers_;
};

CollectiveNote note_of(const P2POp& op) {
  return make_note(op.way == Way::send ? Collective::send : Collective::recv, op.tag, op.tensor);
}

void carry_one(Group& group, P2POp op) { batch_isend_irecv(group, {std::move(op)}); }

// Half of the longest there is where the group does not tell.
std::chrono::milliseconds timeout_of(Group& group) {
  if (const Wire* const wire = group.wire()) return wire->timeout();
  if (const base::Node* const node = group.shared_node()) return node->member.timeout();
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::duration::max()) / 2;
}

// Messages of nothing, that throw when they are not moved in time.
class Roll final : public Messages {
 public:
  Roll(Group& group, std::vector<Message> messages, std::chrono::milliseconds timeout)
      : group_(group), messages_(std::move(messages)), timeout_(timeout) {}

  Message* next() override {
    if (begun_ < messages_.size()) return &messages_[begun_++];
    if (is_any_left() && Clock::now() - start_ >= timeout_) miss();
    return nullptr;
  }
  void moved(Message& message) override { message.peer = kDone; }

 private:
  static constexpr int kDone = -1;

  bool is_any_left() const {
    return std::any_of(messages_.begin(), messages_.end(), [](const Message& one) { return one.peer != kDone; });
  }
  [[noreturn]] void miss() const {
    const auto name_of = [&](int rank) { return "rank " + std::to_string(name_in_world(group_, rank)); };
    std::string missing;
    for (const Message& one : messages_)
      if (one.peer != kDone) missing += (missing.empty() ? "" : ", ") + name_of(one.peer);
    const std::string cause = "monitored_barrier: " + name_of(group_.rank()) + " waited " +
                              std::to_string(timeout_.count()) + " ms for " + missing;
    group_.abort(cause);
    throw Error(cause);
  }

  Group& group_;
  std::vector<Message> messages_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point start_ = Clock::now();
  std::size_t begun_ = 0;
};

}  // namespace

Transfer::Transfer(P2POp op, int rank, int size, Ended ended)
    : op_(std::move(op)), stream_(op_.tensor), ended_(std::move(ended)) {
  check_message(op_.tensor, op_.peer, op_.tag, rank, size, name_of(op_.way));
  if (op_.way == Way::recv) check_writable(op_.tensor, name_of(op_.way));
  const at::Tensor values =
      op_.tensor.detach();  // keeps the storage, whatever the caller makes of the tensor meanwhile
  dense_ = op_.way == Way::send ? host_values(values) : host_room(values);
  in_place_ = dense_.is_same(values);
  message_ = {.way = op_.way,
              .peer = op_.peer,
              .bytes = {static_cast<std::byte*>(dense_.mutable_data_ptr()), dense_.nbytes()},
              .note = note_of(op_)};
}

void Transfer::finish() {
  if (op_.way == Way::send || in_place_) return;
  const c10::InferenceMode mode(op_.tensor.is_inference());  // maybe another thread than the caller's
  const CallersStream::Here here(stream_);
  op_.tensor.detach().copy_(dense_);
}

void Transfer::tell(const std::exception_ptr& error) const {
  if (ended_) ended_(error);
}

void carry(Group& group, const std::function<std::shared_ptr<Transfer>()>& next) {
  UnderWay under_way(next);
  if (under_way.is_empty()) return;
  try {
    group.carry(under_way);
  } catch (...) {
    under_way.fail(std::current_exception());
    throw;
  }
}

void batch_isend_irecv(Group& group, const std::vector<P2POp>& ops) {
  std::vector<std::shared_ptr<Transfer>> transfers;
  for (const P2POp& op : ops) transfers.push_back(std::make_shared<Transfer>(op, group.rank(), group.size()));
  std::size_t begun = 0;
  carry(group, [&] { return begun < transfers.size() ? transfers[begun++] : nullptr; });
}

void send(Group& group, const at::Tensor& tensor, int peer, int tag) {
  carry_one(group, {.way = Way::send, .tensor = tensor, .peer = peer, .tag = tag});
}

void recv(Group& group, const at::Tensor& tensor, int peer, int tag) {
  carry_one(group, {.way = Way::recv, .tensor = tensor, .peer = peer, .tag = tag});
}

void send_bytes(Group& group, const std::string& bytes, int peer, int tag) {
  auto length = std::int64_t(bytes.size());
  send(group, at::from_blob(&length, {1}, at::kLong), peer, tag);
  send(group, at::from_blob(const_cast<char*>(bytes.data()), {length}, at::kByte), peer, tag);
}

std::string recv_bytes(Group& group, int peer, int tag) {
  std::int64_t length = 0;
  recv(group, at::from_blob(&length, {1}, at::kLong), peer, tag);
  std::string bytes(std::size_t(length), '\0');
  recv(group, at::from_blob(bytes.data(), {length}, at::kByte), peer, tag);
  return bytes;
}

// Rank 0 hears from all that they have come, and then tells them so. Whoever comes `timeout` before it may have to wait
// as long again until it has given up on others: all of that before the group gives up on rank 0.
void monitored_barrier(Group& group, std::chrono::milliseconds timeout) {
  timeout = std::min(timeout, timeout_of(group) / 2);
  const CollectiveNote note{.collective = Collective::monitored_barrier};
  const auto all = [&](Way way) {
    std::vector<Message> messages;
    for (int peer = 1; peer < group.size(); ++peer)
      messages.push_back({.way = way, .peer = peer, .bytes = {}, .note = note});
    return messages;
  };
  if (group.rank() == 0) {
    for (const Way way : {Way::recv, Way::send}) {
      Roll roll(group, all(way), timeout);
      group.carry(roll);
    }
    return;
  }
  Roll roll(group,
            {{.way = Way::send, .peer = 0, .bytes = {}, .note = note},
             {.way = Way::recv, .peer = 0, .bytes = {}, .note = note}},
            2 * timeout);
  group.carry(roll);
}

}  // namespace lockstep::comm
