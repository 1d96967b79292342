#include "lockstep/state/write_guard.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace lockstep::state {

// In a list that only grows, for the handler may walk it at any time; what nobody watches any more is used again.
struct Watched {
  std::atomic<const std::byte*> region{nullptr};
  const Layout* layout = nullptr;
  Watched* next = nullptr;
};

namespace {

std::atomic<Watched*> watched{nullptr};
struct sigaction previous;
std::once_flag installed;

void say(const char* text) {
  // Nothing can be done about a failing write in a signal handler.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

bool within(std::size_t offset, std::size_t first, std::size_t bytes) {
  return offset >= first && offset < first + bytes;
}

// Async-signal-safe: reads immutable data, compares.
const TensorSpec* find_parameter(const Watched& watch, const std::byte* address) {
  const std::byte* region = watch.region.load(std::memory_order_acquire);
  if (region == nullptr || address < region) return nullptr;
  const Layout& layout = *watch.layout;
  const auto offset = std::size_t(address - region);
  for (int buffer = 0; buffer < layout.options().state_buffers; ++buffer) {
    for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
      const PlacedParameter& parameter = layout.parameters()[i];
      const bool copied = parameter.spec.bf16_copy;
      const std::size_t begin =
          copied ? layout.bf16_copy(buffer, i) : layout.weights(buffer) + parameter.offset * sizeof(float);
      const std::size_t width = copied ? sizeof(std::uint16_t) : sizeof(float);
      if (within(offset, begin, parameter.elements * width)) return &parameter.spec;
    }
    for (const PlacedBuffer& parameter : layout.frozen())
      if (within(offset, layout.frozen_area(buffer) + parameter.offset, parameter.bytes)) return &parameter.spec;
  }
  return nullptr;
}

void name_the_parameter(const std::byte* address) {
  for (const Watched* watch = watched.load(std::memory_order_acquire); watch != nullptr; watch = watch->next) {
    const TensorSpec* parameter = find_parameter(*watch, address);
    if (parameter == nullptr) continue;
    say("lockstep: error: parameter '");
    say(parameter->name.c_str());
    say("' was edited in place, but the weights are shared by all ranks and read-only; "
        "edit them inside ddp.modify(fn)\n");
    return;
  }
}

// A signal that somebody sent, which has no address: it is not ours, and we stay installed.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler == SIG_IGN) return;
  if (previous.sa_handler != SIG_DFL) return previous.sa_handler(signal);
  // Delivered when this handler returns, with its sender.
  sigaction(signal, &previous, nullptr);
  syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), signal, info);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (info->si_code <= 0) return pass_on(signal, info, context);
  name_the_parameter(static_cast<const std::byte*>(info->si_addr));
  // The faulting instruction runs again, under whatever handler there was before.
  sigaction(signal, &previous, nullptr);
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous);
}

Watched* unused() {
  Watched* const first = watched.load(std::memory_order_acquire);
  for (Watched* watch = first; watch != nullptr; watch = watch->next)
    if (watch->region.load() == nullptr) return watch;
  auto* fresh = new Watched;
  fresh->next = first;
  watched.store(fresh, std::memory_order_release);
  return fresh;
}

}  // namespace

WriteGuard::WriteGuard(const std::byte* region, const Layout& layout) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  watched_ = unused();
  watched_->layout = &layout;
  watched_->region.store(region, std::memory_order_release);
  std::call_once(installed, install);
}

WriteGuard::~WriteGuard() { watched_->region.store(nullptr, std::memory_order_release); }

}  // namespace lockstep::state
