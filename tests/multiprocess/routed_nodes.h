#pragma once

// Up to a few nodes in network namespaces of a test's own, each with a wire to a router between them.

#include <string>

namespace lockstep::testing {

/// The beginning of a script that runs in_namespace() (two_nodes.h): the nodes a, b, ... have the addresses 10.77.1.2,
/// 10.77.2.2, ...; `$in_b` runs a command on node b, and `$in_b exec` becomes it; `ip link set vb down` cuts its wire;
/// `end_nodes` ends the namespaces.
inline std::string routed_nodes(int count) {
  std::string names;
  for (int i = 0; i < count; ++i) names += std::string(" ") + char('a' + i);
  return R"sh(
set -e
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
number=0 spaces=
for name in)sh" +
         names + R"sh(; do
  number=$((number + 1))
  unshare -n sleep 100 & ns=$!
  spaces="$spaces $ns"
  while [ "$(readlink /proc/$ns/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
  eval "in_$name='nsenter -t $ns -n' ns_$name=$ns"
  ip link add v$name type veth peer name wire netns $ns
  ip addr add 10.77.$number.1/24 dev v$name
  ip link set v$name up
  nsenter -t $ns -n sh -c "ip link set lo up; ip addr add 10.77.$number.2/24 dev wire; ip link set wire up
    ip route add default via 10.77.$number.1"
done
end_nodes() { kill $spaces; }
set +e
)sh";
}

}  // namespace lockstep::testing
