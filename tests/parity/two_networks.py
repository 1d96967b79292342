"""Two machines, as far as ranks can tell: networks of their own with a wire between them, for processes that are forked.

`a` is 10.77.0.1 at its interface va, `b` 10.77.0.2 at vb.
"""
import ctypes
import os
import subprocess
import unittest

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
ALONE = ("unshare", "--user", "--map-root-user", "--net")
# Says a process of each, and lasts until its input ends.
SCRIPT = """
set -e
ip link set lo up
unshare --net sleep 300 & other=$!
trap "kill $other" EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
ip link add va type veth peer name vb netns $other
ip addr add 10.77.0.1/24 dev va
ip link set va up
nsenter --target $other --net sh -c "ip link set lo up; ip addr add 10.77.0.2/24 dev vb; ip link set vb up"
echo $$ $other
read line || true
"""


class TwoNetworks:
    """Skips the test where there can be none."""

    def __init__(self):
        if subprocess.run([*ALONE, "true"], check=False, capture_output=True, timeout=30).returncode != 0:
            raise unittest.SkipTest("two machines need namespaces of users and networks")
        environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        self.keeper = subprocess.Popen([*ALONE, "sh", "-c", SCRIPT], env=environment, text=True, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        line = self.keeper.stdout.readline()
        if not line:
            raise AssertionError(f"no two networks: their keeper has ended with {self.keeper.wait(30)}")
        self.processes = dict(zip("ab", line.split(), strict=True))

    def end(self):
        self.keeper.communicate(timeout=30)

    def place(self, rank, machines, program, *arguments):
        """In a rank, for backend_ranks.run: program(rank, *arguments) on the machine that `machines`, "aab", has for it."""
        machine = machines[rank]
        files = [os.open(f"/proc/{self.processes[machine]}/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")]
        for file, kind in zip(files, (CLONE_NEWUSER, CLONE_NEWNET)):
            if ctypes.CDLL(None, use_errno=True).setns(file, kind) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            os.close(file)
        os.environ["GLOO_SOCKET_IFNAME"] = "v" + machine
        program(rank, *arguments)
