#include "lockstep/comm/network/mpi_session.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/base/process_id.h"
#include "lockstep/base/text.h"
#include "lockstep/rendezvous/variable_reader.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{1};
// For the others at the end of a process whose groups still live.
constexpr std::chrono::milliseconds kLastLook{2000};

std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

std::vector<std::string> files_of(const std::string& mpi) {
  const std::string file = "liblockstep_mpi_" + mpi + ".so";
  if (const char* const folder = std::getenv("LOCKSTEP_MPI_DIR"); folder != nullptr && *folder != 0)
    return {std::string(folder) + "/" + file};
  std::error_code unknown;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  return {program / file, program / ".." / "lib" / file, LOCKSTEP_MPI_INSTALLED "/" + file, file};
}

const LockstepMpi* table_of(const std::string& mpi) {
  std::string why;
  for (const std::string& file : files_of(mpi)) {
    if (file.find('/') != std::string::npos && ::access(file.c_str(), F_OK) != 0) continue;
    // Open MPI's own components look for its symbols among everybody's.
    void* const plugin = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (plugin == nullptr) {
      const char* const said = dlerror();  // the first one tells: the last place has no folder, and never the file
      if (why.empty() && file.find('/') != std::string::npos) why = said == nullptr ? file : said;
      continue;
    }
    const auto get = reinterpret_cast<LockstepMpiTable>(dlsym(plugin, LOCKSTEP_MPI_SYMBOL));
    if (get != nullptr && get()->version == LOCKSTEP_MPI_VERSION) return get();
    why = file + " is of another version of Lockstep";
  }
  throw UsageError("init: backend 'mpi' needs liblockstep_mpi_" + mpi + ".so" +
                   (why.empty() ? std::string(", which is not there") : " (" + base::line_of(why) + ")") +
                   ": install lib" + mpi +
                   "-dev, build Lockstep again, and set LOCKSTEP_MPI_DIR to its folder where "
                   "that is not beside the program");
}

}  // namespace

std::string mpi_of(const rendezvous::GetEnv& get) {
  const rendezvous::VariableReader read(get, "MPI");
  if (const auto named = read.text("LOCKSTEP_MPI")) {
    if (*named != "openmpi" && *named != "mpich")
      throw UsageError("environment: LOCKSTEP_MPI=" + base::shown(*named) + " is neither openmpi nor mpich");
    return *named;
  }
  if (read.has("OMPI_COMM_WORLD_SIZE") || read.has("PMIX_RANK")) return "openmpi";
  if (read.has("PMI_RANK")) return "mpich";
  throw UsageError(
      "init: backend 'mpi': neither OMPI_COMM_WORLD_SIZE, PMIX_RANK nor PMI_RANK is set, so whose MPI has started this "
      "process is not known: start it by mpirun, or by srun --mpi=pmix or --mpi=pmi2, or set LOCKSTEP_MPI to openmpi "
      "or "
      "mpich");
}

void check_thread_level(const std::string& mpi, int level) {
  if (level >= LOCKSTEP_MPI_SERIALIZED) return;
  throw UsageError("init: backend 'mpi': " + mpi + " was initialised with " +
                   (level == LOCKSTEP_MPI_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED") +
                   "; needed is MPI_THREAD_SERIALIZED: ask MPI_Init_thread for it, or leave that to init()");
}

void check_mpi_place(const std::string& mpi, int rank, int size, const rendezvous::Place& place) {
  if (rank == place.rank && size == place.world_size) return;
  throw UsageError("init: backend 'mpi': " + mpi + " says that this is rank " + std::to_string(rank) + " of " +
                   std::to_string(size) + ", " + place.launcher + " that it is rank " + std::to_string(place.rank) +
                   " of " + std::to_string(place.world_size) +
                   (place.launcher == "srun" ? ": srun needs --mpi=pmix or --mpi=pmi2, as this MPI was built" : ""));
}

MpiSession& MpiSession::load() {
  static auto* const session = new MpiSession(table_of(mpi_of([](const char* name) { return std::getenv(name); })));
  return *session;
}

void MpiSession::call(const char* name, const std::function<int(const LockstepMpi&)>& what) const {
  const std::lock_guard lock(one_at_a_time());
  const int error = what(*table_);
  if (error == 0) return;
  char text[256] = {};
  table_->text(error, text, sizeof text);
  throw Error(std::string(table_->name) + ": " + name + ": " + base::line_of(text));
}

bool MpiSession::is_over(LockstepMpiRequest& request) const {
  int done = 0;
  std::size_t size = 0;
  call("MPI_Test", [&](const LockstepMpi& mpi) { return mpi.test(&request, &done, &size); });
  return done != 0;
}

void MpiSession::start(const rendezvous::Place& place, std::chrono::milliseconds timeout,
                       const std::function<void()>& check) {
  if (started_) return;
  int ours = 0, level = 0, rank = 0, size = 0;
  call("MPI_Init_thread", [&](const LockstepMpi& mpi) { return mpi.init(&ours, &level); });
  ours_ = ours_ || ours != 0;
  check_thread_level(name(), level);
  call("MPI_Comm_rank", [&](const LockstepMpi& mpi) { return mpi.place(&rank, &size); });
  check_mpi_place(name(), rank, size, place);
  LockstepMpiRequest request{};
  call("MPI_Comm_idup", [&](const LockstepMpi& mpi) { return mpi.open(&request); });
  const Clock::time_point deadline = Clock::now() + timeout;
  while (!is_over(request)) {
    check();
    if (Clock::now() >= deadline)
      throw Error("group: " + std::string(name()) + ": the ranks waited " + std::to_string(timeout.count()) +
                  " ms for each other in MPI_Comm_idup");
    std::this_thread::sleep_for(kLook);
  }
  call("MPI_Comm_get_attr", [&](const LockstepMpi& mpi) { return mpi.highest_tag(&highest_tag_); });
  timeout_ = timeout;
  process_ = base::process_id();
  started_ = true;
  // Who ends with an error waits for nobody: mpirun is to tell of it first.
  const auto finish = [](int code, void*) {
    if (code == 0) load().finish();
  };
  if (ours_) on_exit(finish, nullptr);
}

void MpiSession::take_tag(std::int64_t tag) {
  if (tag > highest_tag_ - worlds_)
    throw UsageError("group: " + std::string(name()) + " has tags up to " + std::to_string(highest_tag_) +
                     ", and the groups of this process have used them all");
  next_tag_ = int(tag) + 1;
}

bool MpiSession::may_call() const { return process_ == base::process_id() && table_->is_finalized() == 0; }

// MPI_Finalize waits for all ranks, without a deadline: it is called when all are seen to be there.
void MpiSession::finish() noexcept {
  if (failed_ || !may_call()) return;
  try {
    LockstepMpiRequest request{};
    call("MPI_Ibarrier", [&](const LockstepMpi& mpi) { return mpi.barrier(&request); });
    const auto time = streams_ > 0 ? std::min(timeout_, kLastLook) : timeout_;
    for (const Clock::time_point deadline = Clock::now() + time; !is_over(request);) {
      if (Clock::now() >= deadline) return;
      std::this_thread::sleep_for(kLook);
    }
    call("MPI_Finalize", [](const LockstepMpi& mpi) { return mpi.finalize(); });
  } catch (const std::exception&) {
    // mpirun tells of a process that has ended without it
  }
}

}  // namespace lockstep::comm
