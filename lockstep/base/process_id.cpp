#include "lockstep/base/process_id.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

// A page that a fork leaves empty, however the fork was made.
std::atomic<int>& word_wiped_by_fork() {
  const auto bytes = std::size_t(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw_errno("mmap");
  if (madvise(page, bytes, MADV_WIPEONFORK) != 0) throw_errno("madvise(MADV_WIPEONFORK), Linux 4.14 or newer,");
  return *new (page) std::atomic<int>(0);
}

}  // namespace

int process_id() {
  static std::atomic<int>& known = word_wiped_by_fork();
  int pid = known.load(std::memory_order_relaxed);
  if (pid == 0) known.store(pid = getpid(), std::memory_order_relaxed);
  return pid;
}

}  // namespace lockstep::base
