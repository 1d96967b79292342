// The area of the unit circle by throwing darts, each process its own; and what else processes can do together.
//   lockstep run -n 4 build/bin/example_03_all_reduce
#include <iostream>

#include "lockstep/lockstep.h"

int main() {
  auto world = lockstep::init();
  torch::manual_seed(world.rank());
  at::Tensor darts = torch::rand({100'000, 2}, torch::kDouble) * 2 - 1;
  at::Tensor counts = torch::stack({(darts.norm(2, 1) < 1).sum(), torch::tensor(darts.size(0))});
  world.all_reduce(counts);  // the sum, with the same bits on all ranks
  if (world.rank() == 0) std::cout << "area " << 4 * counts[0].item<double>() / counts[1].item<double>() << std::endl;

  // While the collective is under way this process computes on.
  lockstep::comm::AsyncCollectives async(lockstep::comm::duplicate(*world.group()));
  at::Tensor slowest = torch::tensor(double(world.rank()));
  lockstep::comm::Work work = async.all_reduce(slowest, lockstep::ReduceOp::max);
  double own = darts.mean().item<double>();
  work.wait();
  if (world.rank() == 0) std::cout << "last rank " << slowest.item<double>() << std::endl;

  // Each rank has as many rows as it likes.
  std::vector<at::Tensor> rows = lockstep::comm::all_gather_uneven(*world.group(), darts.narrow(0, 0, world.rank()));
  if (world.rank() == 0) std::cout << "rows " << torch::cat(rows).size(0) << std::endl;

  // The even ranks by themselves; all ranks call new_group, the others get null.
  std::vector<int> even;
  for (int rank = 0; rank < world.size(); rank += 2) even.push_back(rank);
  if (auto group = world.group()->new_group(even)) {
    at::Tensor mean = torch::tensor(own);
    group->all_reduce(mean, lockstep::ReduceOp::mean);
    if (world.rank() == 0) std::cout << "even ranks " << group->size() << std::endl;
  }
}
