#include "lockstep/comm/call_log.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/trace/black_box.h"
#include "lockstep/trace/explain.h"
#include "lockstep/trace/rank_trace.h"

namespace lockstep::comm {

CallLog::CallLog(std::shared_ptr<trace::BlackBox> box, std::string name, std::vector<int> ranks)
    : box_(std::move(box)),
      name_(std::move(name)),
      ranks_(std::move(ranks)),
      group_(keeps() ? box_->add_group(name_, ranks_) : 0),
      sent_(ranks_.size()),
      received_(ranks_.size()) {}

std::uint64_t CallLog::begin_at(trace::Call& call) {
  call.group = group_;
  call.step = box_->step();
  call.phase = box_->phase();
  call.label = label_;
  call.label_number = label_number_;
  return box_->recorder().begin(call);
}

std::uint64_t CallLog::begin(const trace::Call& call) {
  ++collectives_;
  if (!keeps()) return 0;
  trace::Call counted = call;
  counted.number = collectives_;
  return begin_at(counted);
}

std::uint64_t CallLog::begin_message(trace::Call call, int peer) {
  call.number = ++(std::string_view(call.kind) == "send" ? sent_ : received_)[std::size_t(peer)];
  call.peer = ranks_[std::size_t(peer)];
  return begin_at(call);
}

void CallLog::end(std::uint64_t ticket) {
  if (keeps()) box_->recorder().end(ticket);
}

void CallLog::failed(std::uint64_t ticket) {
  if (keeps() && box_->is_over()) return box_->write_if_over();
  try {
    throw;
  } catch (const UsageError&) {
    --collectives_;
    if (keeps()) box_->recorder().forget(ticket);
  } catch (...) {
    end(ticket);
  }
}

std::string CallLog::text_of(const void* counted) {
  const Counted& one = *static_cast<const Counted*>(counted);
  trace::Call call = one.call;
  call.label = one.log.label_;
  call.label_number = one.log.label_number_;
  return "collective " + std::to_string(one.number) + " of " + one.log.name_ + ": " +
         trace::describe(trace::told_call(call));
}

void CallLog::write_if_over() noexcept {
  if (keeps()) box_->write_if_over();
}

void CallLog::set_label(const char* text, std::int64_t number) {
  label_ = text;
  label_number_ = number;
}

std::unique_ptr<CallLog> CallLog::part(const std::vector<int>& ranks) {
  std::vector<int> in_world;
  for (const int rank : ranks) in_world.push_back(ranks_[std::size_t(rank)]);
  return std::make_unique<CallLog>(box_, name_ + "/" + std::to_string(++parts_), std::move(in_world));
}

trace::Call call_of(const char* kind, const at::Tensor& tensor) {
  trace::Call call{.kind = kind};
  if (!tensor.defined()) return call;
  call.dtype = c10::toString(tensor.scalar_type());
  call.elements = tensor.numel();
  call.dimensions = std::uint32_t(tensor.dim());
  const at::IntArrayRef sizes = tensor.sizes();
  std::copy_n(sizes.begin(), std::min(sizes.size(), call.sizes.size()), call.sizes.begin());
  return call;
}

}  // namespace lockstep::comm
