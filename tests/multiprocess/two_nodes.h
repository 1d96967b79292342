#pragma once

// Two nodes in network namespaces of a test's own, and a wire between them.

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::testing {

/// The beginning of a script that runs in_namespace(): the wire is va and vb, 10.77.0.1 and 10.77.0.2; `$in_b` runs a
/// command in the second namespace, which `kill $ns` ends.
inline constexpr const char* kTwoNodes = R"sh(
set -e
ip link set lo up
unshare -n sleep 100 & ns=$!
while [ "$(readlink /proc/$ns/ns/net)" = "$(readlink /proc/self/ns/net)" ];
do sleep 0.01; done
in_b="nsenter -t $ns -n"
ip link add va type veth peer name vb netns $ns
ip addr add 10.77.0.1/24 dev va
ip link set va up
$in_b ip addr add 10.77.0.2/24 dev vb
$in_b ip link set vb up
set +e
)sh";

/// The command that runs a script in a network of its own, in `folder`.
inline std::vector<std::string> in_namespace(const ScratchFolder& folder, const std::string& script) {
  return {"/usr/bin/unshare",
          "--user",
          "--map-root-user",
          "--net",
          "/bin/sh",
          "-c",
          "cd " + folder.path() + "; PATH=$PATH:/usr/sbin:/sbin; " + script};
}

/// Why namespaces cannot be made here; empty: they can.
inline std::string no_namespaces() {
  const ScratchFolder folder;
  Job trial(in_namespace(folder, std::string(kTwoNodes) + "kill $ns"));
  return trial.wait() == 0 ? "" : "no network namespaces here: " + trial.err();
}

inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace lockstep::testing
