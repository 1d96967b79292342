#include "lockstep/launch/machine/machine.h"

#include <netdb.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/device/facts/numa.h"

namespace lockstep::launch {
namespace {

bool all_digits(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

int count_entries(const std::string& folder, const std::string& prefix) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    count += name.starts_with(prefix) && all_digits(name.substr(prefix.size()));
  }
  return count;
}

}  // namespace

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != ssize_t(sizeof number)) throw_errno("launcher: getrandom");
  return number;
}

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

bool is_local_address(const std::string& name) {
  const bool bracketed = name.size() > 2 && name.front() == '[' && name.back() == ']';
  const std::string bare = bracketed ? name.substr(1, name.size() - 2) : name;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(bare.c_str(), nullptr, &wanted, &found) != 0) return false;
  bool local = false;
  for (const addrinfo* at = found; at != nullptr && !local; at = at->ai_next) {
    const base::UniqueFd probe(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    local = probe && bind(probe.get(), at->ai_addr, at->ai_addrlen) == 0;
  }
  freeaddrinfo(found);
  return local;
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string random_id() {
  const std::uint64_t a = random_number();
  const std::uint64_t b = random_number();
  char text[37];
  // Version 4, variant 1 (RFC 9562).
  std::snprintf(text, sizeof text, "%08x-%04x-4%03x-%04x-%012llx", unsigned(a >> 32), unsigned(a >> 16) & 0xffff,
                unsigned(a) & 0xfff, (unsigned(b >> 48) & 0x3fff) | 0x8000,
                static_cast<unsigned long long>(b & 0xffff'ffff'ffffULL));
  return text;
}

int count_gpus(const std::string* visible) {
  // An empty list hides them all, and so does -1, from its place on.
  if (visible != nullptr) {
    if (visible->empty() || visible->starts_with("-1")) return 0;
    return 1 + int(std::ranges::count(visible->substr(0, visible->find(",-1")), ','));
  }
  return count_entries("/dev", "nvidia");
}

std::vector<std::vector<int>> cores_of_workers(const std::vector<int>& gpus) {
  if (gpus.empty() || count_numa_nodes() < 2) return {};
  // A container that has some of the cards' files counts those; the driver's list may be that of the whole machine.
  if (count_gpus(nullptr) != int(device::gpus_of_driver().size())) return {};
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
  return device::cores_near_gpus(
      gpus, device::numa_nodes_of_gpus(variable("CUDA_VISIBLE_DEVICES"), variable("CUDA_DEVICE_ORDER")),
      base::affinity_list());
}

int count_numa_nodes() { return std::max(1, count_entries("/sys/devices/system/node", "node")); }

}  // namespace lockstep::launch
