#include "lockstep/state/write_guard.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep::state {
namespace {

struct Watched {
  std::atomic<const std::byte*> region{nullptr};
  const Layout* layout = nullptr;
};

std::array<Watched, 16> watched;
struct sigaction previous;
std::once_flag installed;

void say(const char* text) {
  // Nothing can be done about a failing write in a signal handler.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

// Async-signal-safe: reads immutable data, compares, writes.
const PlacedParameter* find_parameter(const Watched& watch, const std::byte* address) {
  const std::byte* region = watch.region.load(std::memory_order_acquire);
  if (region == nullptr || address < region) return nullptr;
  const Layout& layout = *watch.layout;
  const auto offset = std::size_t(address - region);
  for (int buffer = 0; buffer < layout.options().state_buffers; ++buffer) {
    for (const PlacedParameter& parameter : layout.parameters()) {
      const bool copied = parameter.spec.bf16;
      const std::size_t width = copied ? sizeof(std::uint16_t) : sizeof(float);
      const std::size_t first =
          (copied ? layout.bf16_copies(buffer) : layout.weights(buffer)) + parameter.offset * width;
      if (offset >= first && offset < first + parameter.elements * width) return &parameter;
    }
  }
  return nullptr;
}

void on_fault(int signal, siginfo_t* info, void*) {
  for (const Watched& watch : watched) {
    const PlacedParameter* parameter = find_parameter(watch, static_cast<const std::byte*>(info->si_addr));
    if (parameter == nullptr) continue;
    say("lockstep: error: parameter '");
    say(parameter->spec.name.c_str());
    say("' was edited in place, but the weights are shared by all ranks and read-only; "
        "edit them inside ddp.modify(fn)\n");
    break;
  }
  // The faulting instruction runs again, under whatever handler there was before.
  sigaction(signal, &previous, nullptr);
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous);
}

}  // namespace

WriteGuard::WriteGuard(const std::byte* region, const Layout& layout) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (slot_ = 0; slot_ < int(watched.size()); ++slot_) {
    Watched& watch = watched[std::size_t(slot_)];
    if (watch.region.load() != nullptr) continue;
    watch.layout = &layout;
    watch.region.store(region, std::memory_order_release);
    std::call_once(installed, install);
    return;
  }
  throw Error("too many models at once: this process watches 16 shared states already");
}

WriteGuard::~WriteGuard() { watched[std::size_t(slot_)].region.store(nullptr, std::memory_order_release); }

}  // namespace lockstep::state
