#include "tests/support/device/comm_cases.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/comm/async.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/device_streams.h"

namespace lockstep::support {
namespace {

using comm::ReduceOp;

constexpr int kSteps = 4;
constexpr int kBatch = 12;

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(20, 64))),
        middle(register_module("middle", torch::nn::Linear(64, 64))),
        last(register_module("last", torch::nn::Linear(64, 5))) {
    register_buffer("seen", torch::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor features = torch::relu(first(x));
    return last(leaves_out ? features : features + torch::tanh(middle(features)));
  }
  torch::nn::Linear first, middle, last;
  bool leaves_out = false;
};
TORCH_MODULE(Net);

at::Generator generator(std::uint64_t seed) { return torch::make_generator<at::CPUGeneratorImpl>(seed); }

// Values that tell ranks and places apart and that add up exactly in every dtype.
at::Tensor values(int rank, at::IntArrayRef sizes, at::ScalarType dtype) {
  return (torch::arange(c10::multiply_integers(sizes), torch::kLong).remainder(7) + rank).to(dtype).view(sizes);
}

struct Beside {
  comm::Group& group;
  at::Device device;
  bool exact;

  // make() on the host; body(tensors) on it and on a copy on the device.
  template <class Make, class Body>
  void operator()(const std::string& what, Make&& make, Body&& body) const {
    const std::vector<at::Tensor> here = make();
    std::vector<at::Tensor> there;
    for (const at::Tensor& one : here) there.push_back(one.to(device));
    const std::vector<at::Tensor> wanted = body(here), got = body(there);
    ASSERT_EQ(got.size(), wanted.size()) << what;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].device(), there[0].device()) << what;
      const at::Tensor back = got[i].cpu();
      EXPECT_TRUE(exact ? back.equal(wanted[i]) : back.allclose(wanted[i], 1e-6, 1e-6)) << what << ", tensor " << i;
    }
  }
};

void reductions(const Beside& beside) {
  comm::Group& group = beside.group;
  const int rank = group.rank(), size = group.size();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kByte})
    for (const std::int64_t n : {0, 1, 33, 70'000})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
        const std::string what = std::string(c10::toString(dtype)) + " x " + std::to_string(n);
        const auto make = [&] { return std::vector<at::Tensor>{values(rank, {n}, dtype)}; };
        beside("all_reduce of " + what, make, [&](const std::vector<at::Tensor>& t) {
          group.all_reduce(t[0], op);
          return t;
        });
      }
  beside(
      "mean", [&] { return std::vector<at::Tensor>{torch::rand({1000}, generator(std::uint64_t(rank)))}; },
      [&](const std::vector<at::Tensor>& t) {
        group.all_reduce(t[0], ReduceOp::mean);
        return t;
      });
  beside(
      "reduce_scatter",
      [&] {
        return std::vector<at::Tensor>{values(rank, {size, 40}, at::kFloat)};
      },
      [&](const std::vector<at::Tensor>& t) {
        const at::Tensor output = at::empty({40}, t[0].options());
        group.reduce_scatter(output, t[0]);
        return std::vector<at::Tensor>{output};
      });
}

void moves(const Beside& beside) {
  comm::Group& group = beside.group;
  const int rank = group.rank(), size = group.size();
  const auto make = [&] {
    // Neither contiguous nor in order.
    return std::vector<at::Tensor>{values(rank, {6, 5 * size}, at::kFloat).t()};
  };
  beside("broadcast", make, [&](const std::vector<at::Tensor>& t) {
    group.broadcast(t[0], size - 1);
    return t;
  });
  beside("all_gather", make, [&](const std::vector<at::Tensor>& t) { return group.all_gather(t[0]); });
  beside("all_gather_into_tensor", make, [&](const std::vector<at::Tensor>& t) {
    const at::Tensor output = at::empty({size, t[0].numel()}, t[0].options());
    group.all_gather_into_tensor(output, t[0]);
    return std::vector<at::Tensor>{output};
  });
  beside("all_to_all", make, [&](const std::vector<at::Tensor>& t) {
    const at::Tensor output = at::empty({t[0].numel()}, t[0].options());
    group.all_to_all(output, t[0]);
    return std::vector<at::Tensor>{output};
  });
  beside("coalesced", make, [&](const std::vector<at::Tensor>& t) {
    const std::vector<at::Tensor> all = {t[0].clone(), t[0].clone().mul_(2)};
    comm::all_reduce_coalesced(group, all);
    comm::broadcast_coalesced(group, all);
    return all;
  });
  beside("all_gather_uneven", make,
         [&](const std::vector<at::Tensor>& t) { return comm::all_gather_uneven(group, t[0].narrow(0, 0, rank + 1)); });
  if (size == 1) return;
  beside("messages", make, [&](const std::vector<at::Tensor>& t) {
    const at::Tensor got = at::zeros(t[0].sizes(), t[0].options());
    comm::batch_isend_irecv(
        group, {{comm::Way::send, t[0], (rank + 1) % size, 3}, {comm::Way::recv, got, (rank + size - 1) % size, 3}});
    return std::vector<at::Tensor>{got};
  });
}

void works(const Beside& beside) {
  comm::AsyncCollectives async(comm::duplicate(beside.group));
  beside(
      "works", [&] { return std::vector<at::Tensor>{values(async.rank(), {500}, at::kFloat)}; },
      [&](const std::vector<at::Tensor>& t) {
        t[0].mul_(2);
        const at::Tensor from_last = t[0].clone();
        comm::Work sum = async.all_reduce(t[0]);
        comm::Work work = async.broadcast(from_last, async.size() - 1);
        sum.wait();
        work.wait();
        return std::vector<at::Tensor>{t[0] + 1, from_last};
      });
}

// Not by the generator that all ranks share where they are threads.
void fill(Net& net, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : net->parameters())
    parameter.copy_(torch::randn(parameter.sizes(), generator(++seed)) / 8);
}

void backward(Net& net, parallel::DistributedDataParallel<Net>* ddp, std::uint64_t number, at::Device device, int rank,
              int ranks) {
  const at::Tensor x = torch::randn({kBatch, 20}, generator(2 * number));
  const at::Tensor y = torch::randint(5, {kBatch}, generator(2 * number + 1), torch::kLong);
  const int mine = kBatch / ranks;
  const at::Tensor input = x.narrow(0, rank * mine, mine).to(device);
  const at::Tensor output = ddp != nullptr ? (*ddp)(input) : net->forward(input);
  torch::nn::functional::cross_entropy(output, y.narrow(0, rank * mine, mine).to(device)).backward();
}

}  // namespace

void expect_collectives_as_on_host(comm::Group& group, at::Device device, bool exact) {
  const Beside beside{group, device, exact};
  reductions(beside);
  moves(beside);
  works(beside);
}

void expect_order_in_a_stream(comm::Group& group, at::Device device) {
  const at::Tensor tensor = at::zeros({1 << 20}, at::TensorOptions(at::kFloat).device(device));
  const c10::Stream side = comm::side_stream(tensor.device());
  comm::follow(side, comm::current_stream(tensor.device()));
  at::Tensor sum;
  {
    const c10::StreamGuard guard(side);
    for (int i = 0; i < 50; ++i) tensor.add_(group.rank() + 1);
    group.all_reduce(tensor);
    sum = tensor.sum(at::kDouble);
  }
  comm::follow(comm::current_stream(tensor.device()), side);
  const int ranks = group.size();
  EXPECT_EQ(sum.item<double>(), double(1 << 20) * 50 * ranks * (ranks + 1) / 2);
}

std::string failure_of(comm::Group& group) {
  for (int look = 0; look < 3000; ++look) {
    try {
      group.node().member.check_abort();
    } catch (const std::exception& error) {
      return error.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "";
}

std::vector<at::Tensor> train_classic(const std::shared_ptr<comm::Group>& group, at::Device device,
                                      const ClassicJob& job) {
  Net net;
  fill(net, group != nullptr ? std::uint64_t(group->rank()) : 0);  // they become rank 0's
  net->to(device);
  std::unique_ptr<parallel::DistributedDataParallel<Net>> ddp;
  if (group != nullptr) ddp = std::make_unique<parallel::DistributedDataParallel<Net>>(net, group, job.options);
  if (job.hook) ddp->register_comm_hook(job.hook);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const int rank = group != nullptr ? group->rank() : 0, ranks = group != nullptr ? group->size() : 1;
  const auto loop = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      net->leaves_out = job.leaves_one_out && step % 2 == 1;
      const auto number = std::uint64_t(2 * step);
      optimizer.zero_grad();
      if (job.accumulates) {
        const std::shared_ptr<void> local = ddp ? ddp->no_sync() : nullptr;
        backward(net, ddp.get(), number + 1, device, rank, ranks);
      }
      backward(net, ddp.get(), number, device, rank, ranks);
      optimizer.step();
    }
  };
  if (job.more_of_rank_0 == 0)
    loop(kSteps);
  else
    ddp->join([&] { loop(kSteps + (rank == 0 ? job.more_of_rank_0 : 0)); }, {.divide_by_initial_world_size = false});
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : net->parameters()) {
    EXPECT_EQ(parameter.device().type(), device.type());
    weights.push_back(parameter.detach().cpu());
  }
  return weights;
}

double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  return most;
}

}  // namespace lockstep::support
