#include "lockstep/base/machine_lock.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/outlet.h"
#include "lockstep/base/stop_on.h"
#include "lockstep/base/text.h"

namespace lockstep::base {
namespace {

using std::chrono::steady_clock;

// A process that was killed holds its files until its memory is freed: long enough for the next start of the job.
constexpr std::chrono::milliseconds kSlowDeath{2'000};
constexpr std::chrono::milliseconds kBetweenLooks{20};
constexpr std::chrono::milliseconds kBetweenRequests{500};

// A line that no other machine has, nor this one after a reboot; the containers of a machine have the same.
std::string this_boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id + "\n";
}

enum class SignedBy { this_boot, another, nobody };

// By nobody where its holder has had the lock for a moment only, or the disk of a machine was full, which may be gone.
SignedBy signed_by(const UniqueFd& file) {
  char text[64];
  const ssize_t size = ::pread(file.get(), text, sizeof text, 0);
  if (size == 0) return SignedBy::nobody;
  const bool is_ours = size > 1 && std::string_view(text, std::size_t(size)) == this_boot();
  return is_ours ? SignedBy::this_boot : SignedBy::another;
}

}  // namespace

LockEnd lock_of_machine(const UniqueFd& file, std::optional<std::chrono::milliseconds> patience,
                        const std::string& place) {
  const auto begun = steady_clock::now();
  bool is_told = false;
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return LockEnd::refused;
    const auto waited = steady_clock::now() - begun;
    if (waited < kSlowDeath) {
      std::this_thread::sleep_for(kBetweenLooks);
      continue;
    }
    const SignedBy holder = patience ? signed_by(file) : SignedBy::this_boot;
    if (holder == SignedBy::this_boot) return LockEnd::held;
    if (StopOn::requested()) return LockEnd::stopped;
    const bool is_named = holder == SignedBy::another;
    if (waited >= *patience) return is_named ? LockEnd::held_elsewhere : LockEnd::held_unsigned;
    if (!std::exchange(is_told, true))
      tell(STDERR_FILENO, "lockstep: " + shown(place) +
                              (is_named ? "locked by a job on another machine; waiting for "
                                        : "locked by a job that does not say on which machine it runs; waiting for ") +
                              std::to_string(std::chrono::duration_cast<std::chrono::seconds>(*patience).count()) +
                              " s at most, in case it is gone\n");
    std::this_thread::sleep_for(kBetweenRequests);
  }
  return LockEnd::locked;
}

// On disk, for others read it over the network. Where the disk does not take it, nothing must stand there of who had
// the lock before.
void sign_lock(const UniqueFd& file) {
  const std::string boot = this_boot();
  const bool is_there = ::pwrite(file.get(), boot.data(), boot.size(), 0) == ssize_t(boot.size());
  [[maybe_unused]] const int cut = ::ftruncate(file.get(), is_there ? off_t(boot.size()) : 0);
  [[maybe_unused]] const int synced = ::fsync(file.get());
}

}  // namespace lockstep::base
