#include "lockstep/train/worker.h"

#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/standard_streams.h"
#include "lockstep/device/choice.h"
#include "lockstep/flags/print.h"
#include "lockstep/memory/caching_allocator.h"
#include "lockstep/rendezvous/error_file.h"
#include "lockstep/train/error_text.h"
#include "lockstep/train/launcher_flags.h"

namespace lockstep::train {
namespace {

void say(const std::string& text) { base::tell(STDERR_FILENO, "lockstep: error: " + text + "\n"); }

// The error itself is told elsewhere, on one line.
void show_call_stack(const std::exception& error) {
  const std::string_view what = error.what();
  if (base::call_stacks_wanted() && base::without_call_stack(what).size() < what.size())
    base::tell(STDERR_FILENO, std::string(what) + "\n");
}

// For the launcher, which quotes it in its report. `failure` tells where, `error` why.
void leave_word(Failure failure, const std::exception& error) {
  failure.cause = error_text(error);
  rendezvous::write_error_file(failure);
}

// glibc gives large freed blocks back to the kernel after every step and pays for their page
// faults in the next. A trainer keeps its working set: that of tensors in the cache, and what
// libtorch's kernels take from malloc.
void keep_freed_memory() {
  memory::use_caching_allocator();
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

// One on each GPU, or as many as are asked for. With "cuda:N" all are on that one.
void count_replicas(Options& options) {
  if (options.device != "cuda") {
    if (!options.replicas) throw UsageError(kReplicasMissing);  // "auto" has found no GPU
    return;
  }
  const int gpus = device::find_cuda().devices;
  if (!options.replicas) options.replicas = gpus;
  if (*options.replicas > gpus)
    throw UsageError("--replicas " + std::to_string(*options.replicas) +
                     " with --device cuda, which puts one on each GPU, but there are " + std::to_string(gpus) +
                     "; --device cuda:0 puts all on that one");
}

// Before anything asks libtorch about CUDA. As a member of the group: what all ranks lack, one says.
void choose_device(Options& options, int local_rank) {
  const at::Device device = device::choose(options.device, local_rank);
  if (options.device == "auto") options.device = device.is_cuda() ? "cuda" : "cpu";
  if (is_replicated(options)) count_replicas(options);
}

// An error reaches the user once: from the rank that was the first to write it into the
// error slot. Our agent reads that slot and reports failures itself, all but wrong use.
int run(Task& task, const comm::World& world) {
  comm::Group& group = *world.group();
  try {
    choose_device(task.options, world.place().local_rank);
    return task.work(task.options, world);
  } catch (const std::exception& error) {
    show_call_stack(error);
    const int code = exit_code(error);
    group.abort(error_text(error), code);
    const bool agent_reports = world.place().launcher == "lockstep" && code != kExitUsage;
    if (const base::Member& member = group.node().member; member.first_to_fail()) {
      leave_word(base::read_failure(member.page(), member.generation()), error);
      if (!agent_reports) say(error_text(error));
    }
    return code;
  }
}

comm::World join(const Options& options) {
  const auto in_ms = [](double seconds) { return std::chrono::milliseconds(std::int64_t(seconds * 1000)); };
  const auto bind_to = options.bind_to == "core" ? comm::BindTo::core : comm::BindTo::none;
  // The terminal gives the hint at idle cores in terms of our flags.
  return comm::init({.timeout = in_ms(options.timeout),
                     .stall_warning = in_ms(options.stall_warning),
                     .threads = options.threads,
                     .bind_to = bind_to,
                     .idle_cores_hint = false,
                     .check_calls = options.check_calls});
}

}  // namespace

int run_worker(const std::function<Task()>& parse) {
  bool speaks = true;
  int rank = 0;
  try {
    base::open_standard_streams();
    const rendezvous::Place place = rendezvous::place_from_environment();
    rank = place.rank;
    speaks = rank == 0;
    Task task = parse();
    if (!task.text.empty()) {
      if (speaks && !flags::print_help(task.text)) return kExitFailure;
      return kExitDone;
    }
    // `lockstep train` gives its workers its own command line; `lockstep run` has one of its own.
    const bool is_ours = task.options.own.program.empty();
    if (place.launcher != "lockstep" || !is_ours)
      require_no_launcher_flags(task.options, place.launcher, place.world_size);
    speaks = true;  // the flags are every rank's; what comes now may be wrong on this one alone
    keep_freed_memory();
    std::signal(SIGPIPE, SIG_IGN);  // nobody watching the progress any more is no failure of the run
    return run(task, join(task.options));
  } catch (const GroupAborted& aborted) {  // while joining: told by the rank that gave up first
    if (aborted.failure().rank == rank) {
      leave_word(aborted.failure(), aborted);
      say(error_text(aborted));
    }
    return exit_code(aborted);
  } catch (const std::exception& error) {
    // Each in a file of its own: the launcher ends the others when one is gone, be that the one that speaks.
    leave_word({.rank = rank}, error);
    if (speaks) say(error_text(error));
    return exit_code(error);
  }
}

}  // namespace lockstep::train
