"""A PyTorch script under agents of lockstep run on up to three machines: a node comes late, nodes have other numbers of
workers, a worker, an agent, the one that hosts or all of a node is killed, a spare steps in. The numbers are those of
torchrun on one machine, where nothing happens but that it is started with as many ranks from the same step on.
"""
import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import uuid

import launch_ddp_test as ddp
import launchers

ALONE = ("unshare", "--user", "--map-root-user", "--net")
# Machines a, b and c, networks of their own behind a router: 10.77.1.2, who hosts, 10.77.2.2 and 10.77.3.2. $1 is
# lockstep, $2 flags, $3 the program and $4 what happens, in which `begin b 2` starts an agent with two workers, and
# `says a TEXT` waits until one of a's workers has written it, `tells a TEXT` until a's agent has. Prints the agents'
# exit codes, in the order of the starts.
MACHINES = """
set -e
lockstep=$1 flags=$2 program=$3 story=$4
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
number=0 spaces= agents=
trap 'kill $spaces' EXIT
for name in a b c; do
  number=$((number + 1))
  unshare --net sleep 100 & space=$!
  spaces="$spaces $space"
  until [ "$(readlink /proc/$space/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
  eval "in_$name='nsenter --target $space --net'"
  ip link add v$name type veth peer name wire netns $space
  ip addr add 10.77.$number.1/24 dev v$name
  ip link set v$name up
  nsenter --target $space --net sh -c "ip link set lo up; ip addr add 10.77.$number.2/24 dev wire; ip link set wire up
    ip route add default via 10.77.$number.1"
done
set +e
agent() {
  eval into=\\$in_$1
  exec $into $lockstep run -n $2 --max-restarts 3 --rdzv-backend c10d --rdzv-endpoint 10.77.1.2 --insecure $flags \
    $program > $1.out 2> $1.err
}
begin() { agent $1 $2 & agents="$agents $!"; }
says() { until grep -q "$2" $1.out; do sleep 0.02; done; }
tells() { until grep -qs "$2" $1.err; do sleep 0.02; done; }
eval "$story"
for one in $agents; do wait $one; echo $?; done
exit 0
"""


def setUpModule():
    ddp.setUpModule()


@dataclasses.dataclass
class Story:
    name: str
    nnodes: str
    last_call: str  # seconds
    how: str  # of resume.py
    agents: str
    codes: list[int]  # the agents'
    begins: list[tuple[str, str]]  # attempt and step
    torchrun: list[tuple[int, int]]  # ranks, and the step until which there are so many


STORIES = [
    Story("unequal nodes: a worker is killed, then one of them, and a spare steps in", "2", "30", "worker,node",
          "begin a 2; begin b 1; says a 'attempt 0'; begin c 1", [0, 137, 0], [("0", "0"), ("1", "4"), ("2", "8")],
          [(3, 12)]),
    Story("one comes late", "1:2", "0.1", "wait", "begin a 1; says a 'waits at step 4'; begin b 1", [0, 0],
          [("0", "0"), ("0", "4")], [(1, 4), (2, 12)]),
    Story("the hosting agent is killed, then another, and each time the others go on", "1:3", "30", "host,agent",
          "begin a 1; begin b 1; tells a ' 2 of at least 1 node'; begin c 1", [137, 0, 137],
          [("0", "0"), ("1", "4"), ("2", "8")], [(3, 4), (2, 8), (1, 12)]),
]


@dataclasses.dataclass
class Told:
    codes: list[int]
    out: str
    err: str

    def loss(self) -> list[str]:
        return re.findall(r"final loss (\S+)", self.out)


def on_machines(story: Story) -> Told:
    mark = f"LAUNCH_NODES_TEST={uuid.uuid4()}"
    name, value = mark.split("=")
    environment = launchers.clean_environment(**{"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", name: value},
                                              GLOO_SOCKET_IFNAME="wire")
    flags = (f"--nnodes {story.nnodes} "
             f"--rdzv-conf keep_alive_interval=0.5,last_call_timeout={story.last_call}")
    program = f"{ddp.SCRIPTS / 'resume.py'} snapshot {story.how}"
    with tempfile.TemporaryDirectory() as folder:
        for node in "abc":  # says() may look before there is one
            pathlib.Path(folder, f"{node}.out").touch()
        with launchers.Launched([*ALONE, "sh", "-c", MACHINES, "sh", launchers.BIN / "lockstep", flags, program,
                                 story.agents], environment, cwd=folder) as machines:
            ended = machines.end(120)
            launchers.wait_until(lambda: not launchers.alive_with(mark), f"{story.name}: all its processes are gone",
                                 ddp.LEFT_SECONDS)
        said = {kind: "".join(file.read_text() for file in sorted(pathlib.Path(folder).glob(f"?.{kind}")))
                for kind in ("out", "err")}
    return Told([int(code) for code in ended.out.split()], said["out"], ended.err + said["err"])


def under_torchrun(story: Story) -> Told:
    codes = []
    with tempfile.TemporaryDirectory() as folder:
        for ranks, steps in story.torchrun:
            ended = ddp.run("torchrun", "resume.py", f"{folder}/snapshot", "undisturbed", steps,
                            place=("--standalone", "--nproc-per-node", ranks))
            codes.append(ended.code)
    return Told(codes, ended.out, ended.err)


class Nodes(unittest.TestCase):
    maxDiff = None

    def test_the_numbers_are_those_of_torchrun(self):
        if subprocess.run([*ALONE, "true"], check=False, capture_output=True, timeout=30).returncode != 0:
            self.skipTest("machines need namespaces of users and networks")
        told = ddp.at_once(*((run, story) for story in STORIES for run in (on_machines, under_torchrun)))
        for story, ours, theirs in zip(STORIES, told[::2], told[1::2], strict=True):
            with self.subTest(story.name):
                self.assertEqual(theirs.codes, [0] * len(story.torchrun), theirs.err)
                self.assertEqual(ours.codes, story.codes, ours.err)
                self.assertEqual(re.findall(r"attempt (\d) begins at step (\d+)", ours.out), story.begins, ours.err)
                self.assertEqual(len(theirs.loss()), 1, theirs.out)
                self.assertEqual(ours.loss(), theirs.loss(), ours.err)


if __name__ == "__main__":
    unittest.main()
