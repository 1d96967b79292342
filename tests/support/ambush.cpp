#include "tests/support/ambush.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

#include "lockstep/base/error.h"

namespace lockstep::support {
namespace {

constexpr greg_t kTrapFlag = 0x100;

Ambush laid;
const base::RankWords* watched = nullptr;
const std::atomic<base::Mark>* watched_word = nullptr;  // in place of the phase
base::Mark word_before = 0;
std::byte* page = nullptr;
std::size_t page_bytes = 0;
bool entered = false;
struct sigaction before {};

greg_t& flags(void* context) { return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL]; }

void on_fault(int, siginfo_t* info, void* context) {
  const auto* address = static_cast<std::byte*>(info->si_addr);
  if (address < page || address >= page + page_bytes) {
    sigaction(SIGSEGV, &before, nullptr);  // another's: it comes again
    return;
  }
  mprotect(page, page_bytes, PROT_READ | PROT_WRITE);
  flags(context) |= kTrapFlag;
}

bool is_there() {
  if (watched_word != nullptr) return watched_word->load(std::memory_order_relaxed) != word_before;
  return base::Phase(watched->phase.load(std::memory_order_relaxed)) == laid.phase;
}

void on_step(int, siginfo_t*, void* context) {
  entered = entered || is_there();
  if (entered && laid.instructions-- > 0) return;  // the trap flag comes back with the context
  flags(context) &= ~kTrapFlag;
  if (entered)
    kill(getpid(), laid.signal);
  else
    mprotect(page, page_bytes, PROT_READ);
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction* old) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(signal, &action, old) != 0) throw_errno("sigaction");
}

// Whoever stores to the page of `word` is looked at.
void watch(const Ambush& ambush, const void* word) {
  laid = ambush;
  page_bytes = std::size_t(sysconf(_SC_PAGESIZE));
  page = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(word) / page_bytes * page_bytes);
  handle(SIGTRAP, on_step, nullptr);
  handle(SIGSEGV, on_fault, &before);
  if (mprotect(page, page_bytes, PROT_READ) != 0) throw_errno("mprotect");
}

}  // namespace

void lay(const Ambush& ambush, base::RankWords& words) {
  watched = &words;
  watch(ambush, &words.phase);
}

void lay(const Ambush& ambush, const std::atomic<base::Mark>& word) {
  watched_word = &word;
  word_before = word.load();
  watch(ambush, &word);
}

}  // namespace lockstep::support
