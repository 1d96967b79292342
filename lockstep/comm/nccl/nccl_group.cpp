#include "lockstep/comm/nccl/nccl_group.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/comm/or_abort.h"

namespace lockstep::comm::nccl {
namespace {

bool is_the_hosts(const at::Tensor& tensor) { return !tensor.defined() || tensor.device().is_cpu(); }

std::chrono::milliseconds timeout_of(Group& group) {
  if (const Wire* const wire = group.wire()) return wire->timeout();
  if (const base::Node* const node = group.shared_node()) return node->member.timeout();
  return base::kDefaultTimeout;
}

DataType type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return DataType::float32;
    case at::kDouble:
      return DataType::float64;
    case at::kBFloat16:
      return DataType::bfloat16;
    case at::kHalf:
      return DataType::float16;
    case at::kChar:
      return DataType::int8;
    case at::kInt:
      return DataType::int32;
    case at::kLong:
      return DataType::int64;
    default:  // check_reducible() has seen the others: uint8, and bool, whose bytes are 0 and 1
      return DataType::uint8;
  }
}

RedOp op_of(ReduceOp op, at::ScalarType dtype) {
  if (dtype == at::kBool) return op == ReduceOp::sum || op == ReduceOp::max ? RedOp::max : RedOp::min;
  switch (op) {
    case ReduceOp::mean:
      return RedOp::mean;
    case ReduceOp::min:
      return RedOp::min;
    case ReduceOp::max:
      return RedOp::max;
    case ReduceOp::product:
      return RedOp::product;
    default:
      return RedOp::sum;
  }
}

at::Tensor dense_of(const at::Tensor& tensor) { return tensor.detach().contiguous(); }

// Where the result of a collective comes to lie before it is where it is to be.
at::Tensor room_for(const at::Tensor& output) {
  return output.is_contiguous() ? output.detach() : at::empty(output.sizes(), output.options().requires_grad(false));
}

void put(const at::Tensor& output, const at::Tensor& dense) {
  if (dense.const_data_ptr() != output.const_data_ptr()) output.detach().copy_(dense);
}

std::string text_of(const char* collective, const at::Tensor& tensor) {
  return std::string(collective) + " of " + c10::toString(tensor.scalar_type()) + " x " +
         std::to_string(tensor.numel());
}

}  // namespace

NcclGroup::NcclGroup(std::shared_ptr<Group> inner, Library library)
    : WrappedGroup(inner), inner_(std::move(inner)), library_(std::move(library)) {}

NcclGroup::~NcclGroup() = default;

// Rank 0 alone makes the number under which they meet.
Communicator& NcclGroup::communicator(c10::Device device) {
  if (watchdog_ == nullptr) watchdog_ = std::make_unique<Watchdog>(inner_, duplicate(*inner_), timeout_of(*inner_));
  if (Communicator* const made = watchdog_->find(device)) return *made;
  std::string bytes(sizeof(UniqueId), '\0');
  or_abort(*inner_, [&] {
    UniqueId id;
    if (rank() != 0) return;
    if (const Result result = library_.table.get_unique_id(&id); result != Result::success)
      throw Error(std::string("nccl: ncclGetUniqueId: ") + library_.table.get_error_string(result));
    bytes.assign(id.bytes, sizeof id.bytes);
  });
  bytes = broadcast_bytes(*inner_, bytes, 0);
  UniqueId id;
  bytes.copy(id.bytes, sizeof id.bytes);
  Communicator& communicator = watchdog_->add(library_, device);
  communicator.connect(id, size(), rank(), watchdog_->next());
  return communicator;
}

void NcclGroup::enqueue(const char* collective, const at::Tensor& tensor, const Communicator::Call& call) {
  if (watchdog_ != nullptr) watchdog_->check();
  try {
    Communicator& queue = communicator(tensor.device());
    queue.enqueue(text_of(collective, tensor), watchdog_->next(), call);
  } catch (const Ended&) {
    watchdog_->check();
    throw;
  } catch (const GroupAborted&) {
    throw;
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  }
}

// What NCCL finds wrong here may come of another rank's failure, which was first.
void NcclGroup::fail(const std::string& cause) {
  inner_->abort(cause);
  Failure failure{.rank = name_in_world(*inner_, rank()), .cause = cause};
  try {
    if (base::Node* const node = inner_->shared_node()) node->member.check_abort();
  } catch (const GroupAborted& aborted) {
    if (watchdog_ != nullptr) watchdog_->end(aborted.failure());
    throw;
  }
  if (watchdog_ != nullptr) watchdog_->end(failure);
}

void NcclGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  if (is_the_hosts(tensor)) return inner_->all_reduce(tensor, op);
  check_reducible(tensor, op, "all_reduce");
  const at::Tensor dense = dense_of(tensor);
  void* const data = dense.mutable_data_ptr();
  enqueue("all_reduce", dense, [&](const Table& table, Comm* comm, Stream stream) {
    return table.all_reduce(data, data, std::size_t(dense.numel()), type_of(dense.scalar_type()),
                            op_of(op, dense.scalar_type()), comm, stream);
  });
  put(tensor, dense);
}

void NcclGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (is_the_hosts(output) && is_the_hosts(input)) return inner_->reduce_scatter(output, input, op);
  check_reduce_scatter(output, input, op, rank(), size());
  const at::Tensor from = dense_of(input), to = room_for(output);
  enqueue("reduce_scatter", to, [&](const Table& table, Comm* comm, Stream stream) {
    return table.reduce_scatter(from.const_data_ptr(), to.mutable_data_ptr(), std::size_t(to.numel()),
                                type_of(to.scalar_type()), op_of(op, to.scalar_type()), comm, stream);
  });
  put(output, to);
}

void NcclGroup::broadcast(const at::Tensor& tensor, int root) {
  if (is_the_hosts(tensor)) return inner_->broadcast(tensor, root);
  check_dense(tensor, "broadcast");
  check_root(root, size());
  const at::Tensor dense = dense_of(tensor);
  void* const data = dense.mutable_data_ptr();
  enqueue("broadcast", dense, [&](const Table& table, Comm* comm, Stream stream) {
    return table.broadcast(data, data, dense.nbytes(), DataType::uint8, root, comm, stream);
  });
  if (rank() != root) put(tensor, dense);
}

void NcclGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  if (is_the_hosts(output) && is_the_hosts(input)) return inner_->all_gather_into_tensor(output, input);
  check_all_gather_into(output, input, rank(), size());
  const at::Tensor from = dense_of(input), to = room_for(output);
  enqueue("all_gather", from, [&](const Table& table, Comm* comm, Stream stream) {
    return table.all_gather(from.const_data_ptr(), to.mutable_data_ptr(), from.nbytes(), DataType::uint8, comm, stream);
  });
  put(output, to);
}

void NcclGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  if (is_the_hosts(output) && is_the_hosts(input)) return inner_->all_to_all(output, input);
  check_all_to_all(output, input, size());
  const at::Tensor from = dense_of(input), to = room_for(output);
  const std::size_t part = from.nbytes() / std::size_t(size());
  enqueue("all_to_all", from, [&](const Table& table, Comm* comm, Stream stream) {
    const auto* const sent = static_cast<const std::byte*>(from.const_data_ptr());
    auto* const got = static_cast<std::byte*>(to.mutable_data_ptr());
    Result result = table.group_start();
    for (int peer = 0; peer < size() && (result == Result::success || result == Result::in_progress); ++peer) {
      result = table.send(sent + std::size_t(peer) * part, part, DataType::uint8, peer, comm, stream);
      if (result == Result::success || result == Result::in_progress)
        result = table.recv(got + std::size_t(peer) * part, part, DataType::uint8, peer, comm, stream);
    }
    const Result end = table.group_end();
    return result == Result::success || result == Result::in_progress ? end : result;
  });
  put(output, to);
}

std::shared_ptr<Group> NcclGroup::new_group(const std::vector<int>& ranks) {
  std::shared_ptr<Group> made = inner_->new_group(ranks);
  return made == nullptr ? nullptr : std::make_shared<NcclGroup>(std::move(made), library_);
}

}  // namespace lockstep::comm::nccl
