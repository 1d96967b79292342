#include "lockstep/horovod/functions.h"

#include <torch/serialize.h>

#include <algorithm>
#include <sstream>

#include "lockstep/horovod/agreement.h"
#include "lockstep/horovod/operations.h"

namespace lockstep::horovod {
namespace {

// Runs body(group) as an operation that all ranks of the set call together.
void as_object(const ProcessSet& set, int root, const std::function<void(comm::Group&)>& body) {
  ProcessSet::Members& members = set.members();
  members.queue
      ->run([&](comm::Group& group) {
        agree(group, members.ranks, {.kind = Kind::object, .detail = root, .dtype = std::int64_t(at::kByte)});
        body(group);
      })
      .wait();
}

int root_of(const ProcessSet& set, int root_rank) {
  const std::vector<int> ranks = set.ranks();
  const auto root = std::find(ranks.begin(), ranks.end(), root_rank);
  if (root == ranks.end())
    throw UsageError("horovod: root_rank " + std::to_string(root_rank) + " is not in the process set");
  return int(root - ranks.begin());
}

std::string broadcast_string(const std::string& bytes, int root_rank, const ProcessSet& set) {
  const int root = root_of(set, root_rank);
  std::string received;
  as_object(set, root, [&](comm::Group& group) { received = comm::broadcast_bytes(group, bytes, root); });
  return received;
}

std::string pickled(const at::IValue& object) {
  const std::vector<char> bytes = torch::pickle_save(object);
  return {bytes.begin(), bytes.end()};
}

at::IValue unpickled(const std::string& bytes) { return torch::pickle_load({bytes.begin(), bytes.end()}); }

}  // namespace

void broadcast_parameters(const std::vector<at::Tensor>& parameters, int root_rank, const ProcessSet& set) {
  // All under way at once: one wait instead of one for each.
  std::vector<Handle<at::Tensor>> handles;
  for (const at::Tensor& parameter : parameters)
    if (parameter.defined()) handles.push_back(broadcast_async_(parameter, root_rank, set));
  for (const Handle<at::Tensor>& handle : handles) (void)synchronize(handle);
}

void broadcast_parameters(const torch::OrderedDict<std::string, at::Tensor>& parameters, int root_rank,
                          const ProcessSet& set) {
  broadcast_parameters(parameters.values(), root_rank, set);
}

void broadcast_parameters(const torch::nn::Module& module, int root_rank, const ProcessSet& set) {
  std::vector<at::Tensor> tensors = module.parameters();
  const std::vector<at::Tensor> buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  broadcast_parameters(tensors, root_rank, set);
}

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root_rank, const ProcessSet& set) {
  const bool is_root = rank() == root_rank;
  std::ostringstream written;
  if (is_root) {
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    archive.save_to(written);
  }
  const std::string state = broadcast_string(written.str(), root_rank, set);
  if (is_root) return;
  std::istringstream read(state);
  torch::serialize::InputArchive archive;
  archive.load_from(read);
  optimizer.load(archive);
}

at::IValue broadcast_object(const at::IValue& object, int root_rank, const ProcessSet& set) {
  const bool is_root = rank() == root_rank;
  const std::string bytes = broadcast_string(is_root ? pickled(object) : "", root_rank, set);
  return is_root ? object : unpickled(bytes);
}

std::vector<at::IValue> allgather_object(const at::IValue& object, const ProcessSet& set) {
  const std::string mine = pickled(object);
  std::vector<std::string> all;
  as_object(set, 0, [&](comm::Group& group) { all = comm::all_gather_bytes(group, mine); });
  std::vector<at::IValue> objects;
  for (const std::string& bytes : all) objects.push_back(unpickled(bytes));
  return objects;
}

}  // namespace lockstep::horovod
