// lockstep-bench-comm-rank: one rank of one contender of benchmarks/comm/comm.py: Lockstep's collectives,
// or those of the Gloo inside libtorch. Started by lockstep run; takes turns as turns.h says.

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>

#include "benchmarks/comm/gloo_contender.h"
#include "benchmarks/comm/turns.h"
#include "benchmarks/support/program.h"
#include "lockstep/comm/world.h"

namespace {

using namespace lockstep;

struct Options {
  std::string folder;
  std::string name;
  std::string contender = "staged";
  bool bind = false;
  bench::GlooOptions gloo;
};

// Ours, on ordinary tensors or on shared ones.
struct Ours {
  comm::Group& group;
  bool zero_copy = false;
  std::map<long, at::Tensor> tensors;
  at::Tensor tensor;

  float* buffer(long elements) {
    at::Tensor& found = tensors[elements];
    if (!found.defined()) found = zero_copy ? group.shared_empty({elements}) : at::zeros({elements});
    tensor = found;
    return tensor.mutable_data_ptr<float>();
  }
};

contender ours(Ours& self) {
  return {.self = &self,
          .buffer = [](void* self, long elements) { return static_cast<Ours*>(self)->buffer(elements); },
          .all_reduce =
              [](void* self, float*, long) {
                auto* ours = static_cast<Ours*>(self);
                ours->group.all_reduce(ours->tensor);
              },
          .barrier = [](void* self) { static_cast<Ours*>(self)->group.barrier(); }};
}

int run(Options& options) {
  const World world = init({.bind_to = options.bind ? comm::BindTo::core : comm::BindTo::none});
  if (options.contender == "gloo") {
    options.gloo.rank = world.rank();
    options.gloo.ranks = world.size();
    options.gloo.store_file = options.folder + "/" + options.name + ".store";
    bench::GlooContender gloo(options.gloo);
    const contender turns = gloo.as_contender();
    return take_turns(options.folder.c_str(), options.name.c_str(), world.rank(), world.size(), &turns);
  }
  Ours state{*world.group(), options.contender == "zero-copy", {}, {}};
  const contender turns = ours(state);
  return take_turns(options.folder.c_str(), options.name.c_str(), world.rank(), world.size(), &turns);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("One rank of a contender of benchmarks/comm/comm.py, which starts it.");
  app.add_option("folder", options.folder, "where the pipes are")->required();
  app.add_option("name", options.name, "of the contender: its pipes are NAME.RANK.in and NAME.RANK.out")->required();
  app.add_option("--contender", options.contender, "what to measure")
      ->check(CLI::IsMember({"staged", "zero-copy", "gloo"}));
  app.add_flag("--bind", options.bind, "each rank to a core of its own, as mpirun does");
  app.add_option("--threads", options.gloo.threads, "of Gloo");
  app.add_option("--devices", options.gloo.devices, "of Gloo");
  app.add_option("--parts", options.gloo.parts, "all-reduces that a large tensor is cut into for Gloo");
  app.add_flag("--huge", options.gloo.huge, "huge pages for Gloo's tensors");
  int code = kExitDone;
  const int failed = bench::run_program(app, argc, argv, [&] { code = run(options); });
  return failed != kExitDone ? failed : code;
}
