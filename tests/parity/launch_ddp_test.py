"""Unchanged PyTorch scripts (ddp_scripts/) end under lockstep run as they do under torchrun, and programs of this
library under torchrun as under lockstep run.

Every start carries a mark in its environment, by which what it leaves behind is found.
"""
import concurrent.futures
import contextlib
import functools
import itertools
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest
import uuid

import launchers

SCRIPTS = launchers.HERE / "ddp_scripts"
# Torchrun lends its own store to every attempt, and restarted ranks read the addresses of dead ones: with this and
# --standalone each attempt has a store of its own. (With a static rendezvous an attempt is lost now and then.)
RESTARTS_WORK = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
STANDALONE = ("--standalone", "--nproc-per-node", "2")
LEFT_SECONDS = 1  # what an ended launcher may leave behind, and how long
# Two machines, networks of their own with a wire between them, and on each an agent with one worker: $1 is lockstep, $2
# more flags, the script and its arguments. What the agents print comes one behind the other; the exit code is the first
# node's, unless it is 0.
TWO_MACHINES = """
ip link set lo up
unshare --net sleep 100 & other=$!
trap "kill $other" EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
there="nsenter --target $other --net"
ip link add va type veth peer name vb netns $other
ip addr add 10.77.0.1/24 dev va && ip link set va up
$there sh -c "ip link set lo up; ip addr add 10.77.0.2/24 dev vb; ip link set vb up"
agent="$1 run --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 10.77.0.1:29400 --insecure $2"
GLOO_SOCKET_IFNAME=vb $there $agent > second & second=$!
GLOO_SOCKET_IFNAME=va $agent; first=$?
wait $second; second=$?
cat second
exit $((first == 0 ? second : first))
"""


def setUpModule():
    launchers.require_torch()
    unittest.addModuleCleanup(launchers.warm_torchrun().end)


class Run:
    """A script under one of the launchers; `ended` is there after the block."""

    def __init__(self, side: str, script: str, *arguments, flags=(), place=STANDALONE):
        self.mark = f"LAUNCH_DDP_TEST={uuid.uuid4()}"
        name, value = self.mark.split("=")
        command = [*launchers.COMMANDS[side]["run"], *place, *flags, SCRIPTS / script, *arguments]
        environment = launchers.clean_environment(**RESTARTS_WORK, PYTHONUNBUFFERED="1", **{name: value})
        self.folder = tempfile.TemporaryDirectory()
        self.output = pathlib.Path(self.folder.name, "stdout")
        with self.output.open("w") as output:
            # torchrun is a process of its own from the first in one test, which shows that the warm ones are no different.
            self.launched = launchers.Launched(command, environment, self.folder.name, stdout=output,
                                               warm=side == "torchrun" and script != "train.py")

    def signal_when_it_prints(self, line: str, *signals: int):
        launchers.wait_until(lambda: line in self.output.read_text(), f"{line!r} in {self.launched.process.args}")
        for number in signals:
            os.kill(self.launched.process.pid, number)

    def end(self) -> launchers.Ended:
        with self.launched as job, self.folder:
            ended = job.end(120)
            ended.out = self.output.read_text()
            launchers.wait_until(lambda: not launchers.alive_with(self.mark), "all its processes are gone",
                                 LEFT_SECONDS)
        return ended


def run(side: str, script: str, *arguments, flags=(), place=STANDALONE) -> launchers.Ended:
    return Run(side, script, *arguments, flags=flags, place=place).end()


def at_once(*runs) -> list:
    """What each returns. Two at a time: most of a run is one process that imports torch, and then two."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(*words) for words in runs]]


class Ddp(unittest.TestCase):
    maxDiff = None

    def on_two_machines(self, script: str, *arguments, flags=()) -> launchers.Ended:
        """The script under lockstep with a rank on each of two machines; skips the test where there can be none."""
        alone = ["unshare", "--user", "--map-root-user", "--net"]
        if subprocess.run([*alone, "true"], check=False, capture_output=True, timeout=30).returncode != 0:
            self.skipTest("two machines need namespaces of users and networks")
        words = " ".join([*flags, str(SCRIPTS / script), *arguments])
        with tempfile.TemporaryDirectory() as folder, launchers.Launched(
                [*alone, "sh", "-c", TWO_MACHINES, "sh", launchers.BIN / "lockstep", words],
                launchers.clean_environment(PATH=os.environ["PATH"] + ":/usr/sbin:/sbin"), cwd=folder) as machines:
            return machines.end(120)

    def test_trains_to_the_same_loss(self):
        theirs, ours = at_once((run, "torchrun", "train.py"), (run, "lockstep", "train.py"))
        self.assertEqual((theirs.code, ours.code), (0, 0), theirs.err + ours.err)
        self.assertRegex(theirs.out, r"^final loss [0-9.e-]+ of 2 ranks\n$")
        self.assertEqual(ours.out, theirs.out)

        # And on two nodes, which meet on loopback: the agent that comes second joins the first.
        place = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{launchers.free_port()}")
        node = functools.partial(run, "lockstep", "train.py", place=place)
        nodes = at_once((node,), (node,))
        self.assertEqual([ended.code for ended in nodes], [0, 0], [ended.err for ended in nodes])
        self.assertEqual(sorted(ended.out for ended in nodes), ["", theirs.out])

        # And on two machines.
        ended = self.on_two_machines("train.py")
        self.assertEqual((ended.code, ended.out), (0, theirs.out), ended.err)

    def test_agents_of_the_two_launchers_do_not_meet(self):
        place = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{launchers.free_port()}")
        theirs = Run("torchrun", "train.py", place=place)  # waits for a second node
        with theirs.launched, theirs.folder:
            command = [*launchers.COMMANDS["lockstep"]["run"], *place, "--rdzv-conf", "is_host=0", "--no-python", "true"]
            with launchers.Launched(command, launchers.clean_environment()) as job:
                ours = job.end(120)
        self.assertEqual(ours.code, 2, ours.err)
        said = [line for line in ours.err.splitlines() if "waiting for the agent" not in line]
        self.assertEqual(len(said), 1, ours.err)
        self.assertIn(" is torchrun's (a TCPStore), with whose agents these cannot meet", said[0])

    def test_a_failure_in_rank_1_is_told_as_such(self):
        for arguments in ((), ("record",)):
            with self.subTest(arguments):
                theirs, ours = at_once((run, "torchrun", "fail.py", *arguments), (run, "lockstep", "fail.py", *arguments))
                self.assertEqual((theirs.code, ours.code), (1, 1))
                exception = "ValueError: the loss of rank 1 is no number"
                for ended in (theirs, ours):
                    self.assertIn(f"[rank1]: {exception}", ended.err)  # Python's own traceback
                # It takes @record to leave the cause and its time for the launcher. Without, the first to end is named, and
                # either may be: rank 0 fails as soon as rank 1's shutdown of Python closes its connection.
                first = 1 if arguments else "[01]"
                self.assertRegex(ours.err, rf"lockstep: rank {first} failed: exit code 1 \(host .*, pid \d+\)\n")
                told = f"lockstep:   cause: {exception}\n" in ours.err
                self.assertEqual(told, bool(arguments), ours.err)

    def test_a_hang_ends_when_the_launcher_is_told_to(self):
        def signalled(side: str, number: int) -> launchers.Ended:
            job = Run(side, "hang.py")
            job.signal_when_it_prints("rank 1 is at step 3\n", number)
            return job.end()

        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                theirs, ours = at_once((signalled, "torchrun", number), (signalled, "lockstep", number))
                self.assertEqual(ours.code, 128 + number, ours.err)
                # About one torchrun in a hundred aborts while its Python ends, with the job ended before.
                self.assertIn(theirs.code, (1, -signal.SIGABRT), theirs.err)

    def test_killed_twice_it_resumes_from_its_snapshot(self):
        with tempfile.TemporaryDirectory() as folder:
            def disturbed(side: str):
                return run(side, "resume.py", f"{folder}/{side}", flags=("--max-restarts", "3"))

            theirs, ours, undisturbed = at_once((disturbed, "torchrun"), (disturbed, "lockstep"),
                                                (run, "lockstep", "resume.py", f"{folder}/undisturbed", "undisturbed"))
        self.assertEqual([undisturbed.code, theirs.code, ours.code], [0, 0, 0], theirs.err + ours.err)
        losses = [re.findall(r"final loss (\S+)", ended.out) for ended in (undisturbed, theirs, ours)]
        self.assertEqual(len(losses[0]), 1)
        self.assertEqual([losses[1], losses[2]], [losses[0]] * 2)
        begins = re.findall(r"attempt (\d) begins at step (\d+)", ours.out)
        self.assertEqual(begins, [("0", "0"), ("1", "4"), ("2", "8")])
        self.assertEqual(ours.err.count("lockstep: rank 1 failed: killed by SIGKILL"), 2, ours.err)

        # And on two machines, of which the second loses its rank.
        with tempfile.TemporaryDirectory() as folder:
            ended = self.on_two_machines("resume.py", f"{folder}/snapshot", flags=("--max-restarts", "3"))
        self.assertEqual((ended.code, re.findall(r"final loss (\S+)", ended.out)), (0, losses[0]), ended.err)
        begins = re.findall(r"attempt (\d) begins at step (\d+)", ended.out)
        self.assertEqual(begins, [("0", "0"), ("1", "4"), ("2", "8")], ended.err)
        self.assertIn("lockstep: rank 1 failed: killed by SIGKILL", ended.err)


class OurPrograms(unittest.TestCase):
    TRAIN = (launchers.BIN / "lockstep", "train", "--dataset", "digits", "--model", "mlp", "--max-steps", "20", "--no-eval",
             "--logical-shards", "2", "--seed", "5")

    def end(self, *agents: launchers.Launched) -> str:
        with contextlib.ExitStack() as stack:
            for agent in agents:
                stack.enter_context(agent)
            ended = [agent.end() for agent in agents]
        self.assertEqual([one.code for one in ended], [0] * len(ended), [one.err for one in ended])
        found = re.findall(r"\bweights (\w+)$", "".join(one.out for one in ended), re.MULTILINE)
        self.assertEqual(len(found), 1, ended)
        return found[0]

    def test_two_nodes_of_torchrun_have_the_weights_of_one(self):
        one = self.end(launchers.Launched([*launchers.COMMANDS["lockstep"]["run"], "-n", "2", *self.TRAIN],
                                          launchers.clean_environment()))
        # Whoever has MASTER_PORT: torchrun's store, or nobody. With a static rendezvous it is always the store.
        for backend, own_port in itertools.product(("c10d", "static"), ("0", "1")):
            port = launchers.free_port()

            def agent(node: int) -> launchers.Launched:
                meets = {"c10d": ("--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", f"is_host={1 - node}",
                                  "--local-addr", "127.0.0.1"),
                         "static": ("--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", node)}
                command = [*launchers.COMMANDS["torchrun"]["run"], "--nnodes", "2", "--rdzv-backend", backend,
                           *meets[backend], "--no-python", *self.TRAIN]
                return launchers.Launched(command, launchers.clean_environment(
                    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=own_port), warm=True)

            with self.subTest(backend=backend, own_port=own_port):
                self.assertEqual(self.end(agent(0), agent(1)), one)


if __name__ == "__main__":
    unittest.main()
