#include "lockstep/horovod/agreement.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::horovod {
namespace {

std::vector<Call> hear_all(comm::Group& group, Call mine) {
  const auto words = [](Call& call) {
    return at::from_blob(&call, {std::int64_t(sizeof(Call) / sizeof(std::int64_t))}, at::kLong);
  };
  std::vector<Call> calls;
  for (const at::Tensor& theirs : group.all_gather(words(mine))) words(calls.emplace_back()).copy_(theirs);
  return calls;
}

// Zeros change a sum, a mean and Adasum only as a rank without data should.
bool takes_zeros(const Call& call) {
  if (call.kind == Kind::adasum) return true;
  return call.kind == Kind::allreduce &&
         (call.detail == std::int64_t(comm::ReduceOp::sum) || call.detail == std::int64_t(comm::ReduceOp::mean));
}

}  // namespace

std::string describe(const Call& call) {
  const char* names[] = {"nothing",  "allreduce",     "allreduce", "allgather", "broadcast",
                         "alltoall", "reducescatter", "barrier",   "object",    "join"};
  const char* ops[] = {"sum", "mean", "min", "max", "product"};
  std::string text = std::string(names[std::size_t(call.kind)]) + "(";
  if (call.kind == Kind::barrier || call.kind == Kind::join) return text + ")";
  text += std::to_string(call.elements) + " x " + c10::toString(at::ScalarType(call.dtype));
  if (call.kind == Kind::adasum) text += ", Adasum";
  if (call.kind == Kind::allreduce || call.kind == Kind::reducescatter)
    text += std::string(", ") + ops[std::size_t(call.detail)];
  if (call.kind == Kind::broadcast || call.kind == Kind::object) text += ", root " + std::to_string(call.detail);
  return text + ")";
}

const Call* agreed(const std::vector<Call>& calls, const std::vector<int>& names) {
  const Call* first = nullptr;
  std::size_t caller = 0, joined = calls.size();
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    if (calls[rank].kind == Kind::join) {
      joined = rank;
    } else if (first == nullptr) {
      first = &calls[rank];
      caller = rank;
    } else if (calls[rank] != *first) {
      throw Error("ranks disagree: rank " + std::to_string(names[caller]) + " calls " + describe(*first) + ", rank " +
                  std::to_string(names[rank]) + " calls " + describe(calls[rank]));
    }
  }
  if (first != nullptr && joined < calls.size() && !takes_zeros(*first))
    throw UsageError("rank " + std::to_string(names[caller]) + " calls " + describe(*first) + ", but rank " +
                     std::to_string(names[joined]) +
                     " has joined: until all have, there is only allreduce by Average, Sum or Adasum");
  return first;
}

int last_joined(const std::vector<Call>& calls) {
  std::size_t last = 0;
  for (std::size_t rank = 0; rank < calls.size(); ++rank)
    if (calls[rank].rounds <= calls[last].rounds) last = rank;
  return int(last);
}

void agree(comm::Group& group, const std::vector<int>& names, const Call& mine) {
  (void)agreed(hear_all(group, mine), names);
}

int join_others(comm::Group& group, const std::vector<int>& names) {
  for (Call mine{.kind = Kind::join};; ++mine.rounds) {
    const std::vector<Call> calls = hear_all(group, mine);
    const Call* const theirs = agreed(calls, names);
    if (theirs == nullptr) return names[std::size_t(last_joined(calls))];
    const at::Tensor zeros = at::zeros({theirs->elements}, at::ScalarType(theirs->dtype));
    if (theirs->kind == Kind::adasum)
      (void)group.all_gather(zeros);
    else
      group.all_reduce(zeros, comm::ReduceOp(theirs->detail));
  }
}

}  // namespace lockstep::horovod
