// lockstep-bench-comm-rank: one rank of one contender of benchmarks/comm/comm.py: Lockstep's collectives,
// or those of the Gloo inside libtorch. Started by lockstep run; takes turns as turns.h says.

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <filesystem>
#include <iostream>
#include <map>

#include "benchmarks/comm/gloo_contender.h"
#include "benchmarks/comm/turns.h"
#include "benchmarks/support/program.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/world.h"
#include "lockstep/flags/values.h"

namespace {

using namespace lockstep;

struct Options {
  std::string folder;
  std::string name;
  std::string contender = "staged";
  bool bind = false;
  bool flat = false;
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
  const auto bind_to = options.bind ? comm::BindTo::core : comm::BindTo::none;
  const World world = init({.backend = options.flat ? "tcp" : "auto", .bind_to = bind_to, .idle_cores_hint = false});
  const std::string pipe = options.name + "." + std::to_string(world.rank()) + ".in";
  if (!std::filesystem::exists(options.folder + "/" + pipe))
    throw UsageError("bench comm-rank: FOLDER '" + options.folder + "' has no pipe " + pipe);
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

// Asked for and without effect would be a silent loss.
void check(const flags::Parsed& parsed, const Options& options) {
  if (parsed.operands.size() != 2) throw UsageError("FOLDER and NAME expected: --help says what they are");
  for (const char* flag : {"--address", "--threads", "--devices", "--parts", "--huge"})
    if (parsed.given(flag) && options.contender != "gloo")
      throw UsageError(std::string("bench comm-rank: ") + flag + " without --contender gloo: it is for Gloo alone");
}

flags::Table table_of(Options& options) {
  return {
      .usage = "lockstep-bench-comm-rank FOLDER NAME [options]",
      .about =
          "One rank of a contender of benchmarks/comm/comm.py, which starts it. FOLDER: where the pipes are; NAME: of\n"
          "the contender, whose pipes are NAME.RANK.in and NAME.RANK.out.\n",
      .groups = {{"",
                  {{"--contender", flags::one_of(options.contender, {"staged", "zero-copy", "gloo"})},
                   {"--bind", flags::on(options.bind), "each rank to a core of its own, as mpirun does"},
                   {"--flat", flags::on(options.flat), "messages between all ranks, on a node too"},
                   {"--address", flags::text(options.gloo.address, "IP"), "where this rank's Gloo listens"},
                   {"--threads", flags::integer(options.gloo.threads, 1, 1024), "of Gloo"},
                   {"--devices", flags::integer(options.gloo.devices, 1, 1024), "of Gloo"},
                   {"--parts", flags::integer(options.gloo.parts, 1, 1024),
                    "all-reduces that a large tensor is cut into for Gloo"},
                   {"--huge", flags::on(options.gloo.huge), "huge pages for Gloo's tensors"}}}},
      .operands = flags::Operands::some};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int code = kExitDone;
  const int failed = bench::run_program(table_of(options), argc, argv, [&](const flags::Parsed& parsed) {
    check(parsed, options);
    options.folder = parsed.operands[0];
    options.name = parsed.operands[1];
    code = run(options);
  });
  return failed != kExitDone ? failed : code;
}
