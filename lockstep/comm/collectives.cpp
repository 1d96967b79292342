#include "lockstep/comm/collectives.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <sstream>

#include "lockstep/comm/checks.h"

namespace lockstep::comm {
namespace {

constexpr std::size_t kDimensions = 8;

// What a rank says of its tensor before it is moved.
struct Shape {
  std::int64_t dtype = 0;
  std::int64_t dimensions = 0;
  std::array<std::int64_t, kDimensions> sizes = {};

  bool has_rows_of(const Shape& other) const {
    return dtype == other.dtype && dimensions == other.dimensions &&
           std::equal(sizes.begin() + 1, sizes.end(), other.sizes.begin() + 1);
  }
  std::string to_string() const {
    std::ostringstream text;
    text << c10::toString(at::ScalarType(dtype)) << at::IntArrayRef(sizes.data(), std::size_t(dimensions));
    return text.str();
  }
};

at::Tensor words_of(const void* words, std::size_t bytes) {
  return at::from_blob(const_cast<void*>(words), {std::int64_t(bytes / sizeof(std::int64_t))}, at::kLong);
}

// The shapes of all ranks' tensors, which may differ in the rows alone. All see the same, so all refuse together.
std::vector<Shape> shapes_of_all(Group& group, const at::Tensor& tensor, const char* collective) {
  check_dense(tensor, collective);
  if (tensor.dim() < 1 || tensor.dim() > std::int64_t(kDimensions))
    throw UsageError(std::string(collective) + ": needs a tensor of 1 to " + std::to_string(kDimensions) +
                     " dimensions, this one has " + std::to_string(tensor.dim()));
  Shape mine{std::int64_t(tensor.scalar_type()), tensor.dim(), {}};
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), mine.sizes.begin());
  std::vector<Shape> shapes;
  for (const at::Tensor& words : group.all_gather(words_of(&mine, sizeof mine))) {
    shapes.emplace_back();
    words_of(&shapes.back(), sizeof(Shape)).copy_(words);
  }
  for (std::size_t rank = 1; rank < shapes.size(); ++rank)
    if (!shapes[rank].has_rows_of(shapes[0]))
      throw UsageError(std::string(collective) + ": rank 0 has " + shapes[0].to_string() + ", rank " +
                       std::to_string(rank) + " " + shapes[rank].to_string() + "; only the first dimension may differ");
  return shapes;
}

at::Tensor empty_rows(const at::Tensor& like, std::int64_t rows) {
  std::vector<std::int64_t> sizes = like.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, like.options().requires_grad(false));
}

// Where the tensors of each dtype and device are, in the order in which those first come.
std::vector<std::vector<std::size_t>> numbers_by_dtype(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const std::vector<std::size_t>& group) {
      return tensors[group[0]].scalar_type() == tensors[i].scalar_type() &&
             tensors[group[0]].device() == tensors[i].device();
    });
    if (found == groups.end())
      groups.push_back({i});
    else
      found->push_back(i);
  }
  return groups;
}

at::Tensor flat_of(const std::vector<at::Tensor>& tensors, const std::vector<std::size_t>& numbers) {
  std::vector<at::Tensor> parts;
  for (const std::size_t i : numbers) parts.push_back(tensors[i].detach().reshape({-1}));
  return at::cat(parts);
}

// Cuts what is one behind the other in `flat` into tensors like tensors[i]; put(i, part) has them.
template <class Put>
void hand_out(const at::Tensor& flat, const std::vector<at::Tensor>& tensors, const std::vector<std::size_t>& numbers,
              Put&& put) {
  std::int64_t offset = 0;
  for (const std::size_t i : numbers) {
    put(i, flat.narrow(0, offset, tensors[i].numel()).view(tensors[i].sizes()));
    offset += tensors[i].numel();
  }
}

// Calls collective(flat) with the tensors of each dtype one behind the other, and puts back what has become of them.
void by_dtype(const std::vector<at::Tensor>& tensors, const std::function<void(const at::Tensor&)>& collective) {
  for (const std::vector<std::size_t>& numbers : numbers_by_dtype(tensors)) {
    const at::Tensor flat = flat_of(tensors, numbers);
    collective(flat);
    hand_out(flat, tensors, numbers, [&](std::size_t i, const at::Tensor& part) { tensors[i].detach().copy_(part); });
  }
}

at::Tensor tensor_of(const std::string& bytes) {
  return at::from_blob(const_cast<char*>(bytes.data()), {std::int64_t(bytes.size())}, at::kByte);
}

std::string string_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), std::size_t(bytes.numel())};
}

}  // namespace

std::shared_ptr<Group> duplicate(Group& group) {
  std::vector<int> ranks(std::size_t(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group.new_group(ranks);
}

std::vector<at::Tensor> all_gather_uneven(Group& group, const at::Tensor& tensor) {
  const std::vector<Shape> shapes = shapes_of_all(group, tensor, "all_gather_uneven");
  std::int64_t rows = 0;
  bool even = true;
  for (const Shape& shape : shapes) {
    rows = std::max(rows, shape.sizes[0]);
    even = even && shape.sizes[0] == shapes[0].sizes[0];
  }
  if (even) return group.all_gather(tensor);
  const at::Tensor padded = empty_rows(tensor, rows);
  padded.narrow(0, 0, tensor.size(0)).copy_(tensor.detach());
  std::vector<at::Tensor> gathered = group.all_gather(padded);
  for (std::size_t rank = 0; rank < gathered.size(); ++rank)
    gathered[rank] = gathered[rank].narrow(0, 0, shapes[rank].sizes[0]).clone();
  return gathered;
}

Received all_to_all_uneven(Group& group, const at::Tensor& input, const std::vector<std::int64_t>& splits) {
  const auto ranks = std::size_t(group.size());
  const std::vector<Shape> shapes = shapes_of_all(group, input, "all_to_all");
  // Each rank's splits; those that cannot be are seen by all.
  std::vector<std::int64_t> mine(ranks, -1);
  if (splits.size() == ranks) mine = splits;
  const std::vector<at::Tensor> all = group.all_gather(words_of(mine.data(), ranks * sizeof(std::int64_t)));
  std::int64_t largest = 0;
  Received received;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto* theirs = all[rank].const_data_ptr<std::int64_t>();
    const bool negative = std::any_of(theirs, theirs + ranks, [](std::int64_t split) { return split < 0; });
    if (negative || std::accumulate(theirs, theirs + ranks, std::int64_t(0)) != shapes[rank].sizes[0])
      throw UsageError("all_to_all: rank " + std::to_string(rank) + " has " + std::to_string(shapes[rank].sizes[0]) +
                       " rows; its splits need to be " + std::to_string(ranks) + " numbers from 0 that add up to that");
    largest = std::max(largest, *std::max_element(theirs, theirs + ranks));
    received.splits.push_back(theirs[group.rank()]);
  }
  const at::Tensor sent = empty_rows(input, largest * std::int64_t(ranks));
  const at::Tensor got = at::empty_like(sent);
  std::int64_t row = 0;
  for (std::size_t rank = 0; rank < ranks; row += mine[rank++])
    sent.narrow(0, std::int64_t(rank) * largest, mine[rank]).copy_(input.detach().narrow(0, row, mine[rank]));
  group.all_to_all(got, sent);
  std::vector<at::Tensor> parts;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    parts.push_back(got.narrow(0, std::int64_t(rank) * largest, received.splits[rank]));
  received.output = at::cat(parts);
  return received;
}

std::vector<at::Tensor> gather(Group& group, const at::Tensor& tensor, int root) {
  check_root(root, group.size(), "gather");
  std::vector<at::Tensor> gathered = group.all_gather(tensor);
  if (group.rank() != root) gathered.clear();
  return gathered;
}

void scatter(Group& group, const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root) {
  check_root(root, group.size(), "scatter");
  check_dense(output, "scatter");
  const std::int64_t part = output.numel();
  const at::Tensor all = at::empty({part * group.size()}, output.options().requires_grad(false));
  if (group.rank() == root) {
    bool fits = inputs.size() == std::size_t(group.size());
    for (const at::Tensor& input : inputs)
      fits = fits && input.defined() && input.numel() == part && input.scalar_type() == output.scalar_type();
    // Only the root sees it: the others hear of it instead of waiting.
    if (!fits) {
      const std::string cause = "scatter: the root needs " + std::to_string(group.size()) +
                                " inputs like its output, " + std::to_string(part) + " x " +
                                c10::toString(output.scalar_type());
      group.abort(cause, kExitUsage);
      throw UsageError(cause);
    }
    for (std::size_t rank = 0; rank < inputs.size(); ++rank)
      all.narrow(0, std::int64_t(rank) * part, part).copy_(inputs[rank].detach().reshape({-1}));
  }
  group.broadcast(all, root);
  output.detach().copy_(all.narrow(0, group.rank() * part, part).view(output.sizes()));
}

void reduce(Group& group, const at::Tensor& tensor, int root, ReduceOp op) {
  check_root(root, group.size(), "reduce");
  check_reducible(tensor, op, "reduce");
  group.all_reduce(group.rank() == root ? tensor : tensor.detach().clone(), op);
}

void all_reduce_coalesced(Group& group, const std::vector<at::Tensor>& tensors, ReduceOp op) {
  for (const at::Tensor& tensor : tensors) check_reducible(tensor, op, "all_reduce_coalesced");
  by_dtype(tensors, [&](const at::Tensor& flat) { group.all_reduce(flat, op); });
}

void broadcast_coalesced(Group& group, const std::vector<at::Tensor>& tensors, int root) {
  for (const at::Tensor& tensor : tensors) check_dense(tensor, "broadcast_coalesced");
  by_dtype(tensors, [&](const at::Tensor& flat) { group.broadcast(flat, root); });
}

std::vector<std::vector<at::Tensor>> all_gather_coalesced(Group& group, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) check_dense(tensor, "all_gather_coalesced");
  std::vector<std::vector<at::Tensor>> by_rank(std::size_t(group.size()), std::vector<at::Tensor>(tensors.size()));
  for (const std::vector<std::size_t>& numbers : numbers_by_dtype(tensors)) {
    const std::vector<at::Tensor> gathered = group.all_gather(flat_of(tensors, numbers));
    for (std::size_t rank = 0; rank < gathered.size(); ++rank)
      hand_out(gathered[rank], tensors, numbers,
               [&](std::size_t i, const at::Tensor& part) { by_rank[rank][i] = part; });
  }
  return by_rank;
}

// The inputs of a dtype as one matrix with a row for each rank.
void reduce_scatter_coalesced(Group& group, const std::vector<at::Tensor>& outputs,
                              const std::vector<at::Tensor>& inputs, ReduceOp op) {
  if (outputs.size() != inputs.size())
    throw UsageError("reduce_scatter_coalesced: " + std::to_string(inputs.size()) + " inputs for " +
                     std::to_string(outputs.size()) + " outputs");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check_reduce_scatter(outputs[i], inputs[i], op, group.rank(), group.size());
  for (const std::vector<std::size_t>& numbers : numbers_by_dtype(inputs)) {
    std::vector<at::Tensor> columns;
    for (const std::size_t i : numbers)
      columns.push_back(inputs[i].detach().reshape({group.size(), outputs[i].numel()}));
    const at::Tensor all = at::cat(columns, 1);
    const at::Tensor mine = at::empty({all.size(1)}, all.options());
    group.reduce_scatter(mine, all, op);
    hand_out(mine, outputs, numbers, [&](std::size_t i, const at::Tensor& part) { outputs[i].detach().copy_(part); });
  }
}

std::string broadcast_bytes(Group& group, const std::string& bytes, int root) {
  std::int64_t length = std::int64_t(bytes.size());
  group.broadcast(words_of(&length, sizeof length), root);
  if (group.rank() == root) {
    group.broadcast(tensor_of(bytes), root);
    return bytes;
  }
  std::string received(std::size_t(length), '\0');
  group.broadcast(tensor_of(received), root);
  return received;
}

std::vector<std::string> all_gather_bytes(Group& group, const std::string& bytes) {
  std::vector<std::string> strings;
  for (const at::Tensor& theirs : all_gather_uneven(group, tensor_of(bytes))) strings.push_back(string_of(theirs));
  return strings;
}

std::vector<std::string> gather_bytes(Group& group, const std::string& bytes, int root) {
  check_root(root, group.size(), "gather_bytes");
  std::vector<std::string> all = all_gather_bytes(group, bytes);
  if (group.rank() != root) all.clear();
  return all;
}

std::string scatter_bytes(Group& group, const std::vector<std::string>& objects, int root) {
  check_root(root, group.size(), "scatter_bytes");
  const auto ranks = std::size_t(group.size());
  std::vector<std::int64_t> lengths(ranks);
  std::string all;
  if (group.rank() == root) {
    // Only the root sees it: the others hear of it instead of waiting.
    if (objects.size() != ranks) {
      const std::string cause =
          "scatter_bytes: the root needs " + std::to_string(ranks) + " objects, not " + std::to_string(objects.size());
      group.abort(cause, kExitUsage);
      throw UsageError(cause);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      lengths[rank] = std::int64_t(objects[rank].size());
      all += objects[rank];
    }
  }
  group.broadcast(words_of(lengths.data(), ranks * sizeof(std::int64_t)), root);
  all.resize(std::size_t(std::accumulate(lengths.begin(), lengths.end(), std::int64_t(0))));
  group.broadcast(tensor_of(all), root);
  const auto mine = lengths.begin() + group.rank();
  return all.substr(std::size_t(std::accumulate(lengths.begin(), mine, std::int64_t(0))), std::size_t(*mine));
}

}  // namespace lockstep::comm
