#pragma once

// Doctors on several hosts, and what they find out together.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/launch/doctor/between.h"
#include "lockstep/launch/doctor/other_doctor.h"

namespace lockstep::launch {

/// From so many hosts on only the ways to and from the first one are measured: all of them would take minutes.
inline constexpr std::size_t kManyHosts = 9;

struct HostsFound {
  std::vector<HostFacts> hosts;
  std::vector<WayFacts> ways;
};

/// One whose doctor is asked.
struct Contact {
  std::string name;     ///< in what is found
  std::string address;  ///< where the others reach it: a name, or an address in figures
  std::unique_ptr<OtherDoctor> doctor;
};

/// The doctors of `hosts`, each started by `program` through `shell`. SIGPIPE must be ignored.
std::vector<Contact> contacts_by_shell(const std::vector<std::string>& hosts, const std::vector<std::string>& shell,
                                       const std::vector<std::string>& program);

/// Has them say what they have found, and measure the ways between them. `patience`: for the first word of each. What
/// fails is said in the facts.
HostsFound examine_hosts(std::vector<Contact> contacts, std::chrono::milliseconds patience);

}  // namespace lockstep::launch
