"""torch.distributed's backend "lockstep" (python/) does what gloo does, in Python's own words.

The ranks of most tests are forked from this process: importing torch costs seconds.
"""
import ctypes
import datetime
import hashlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

import launch_ddp_test
import launchers
import two_networks

PACKAGE = launchers.BIN.parent / "python"
sys.path.insert(0, str(PACKAGE))
GUIDE = launchers.HERE.parents[1] / "docs/guide/python.md"


def setUpModule():
    launchers.require_torch()
    if not (PACKAGE / "lockstep_torch" / "__init__.py").exists():
        raise unittest.SkipTest("lockstep_torch is not built: `cmake --build build --target python` does it or says why")
    global backend_collectives, backend_ranks, checkpoint, dist, fully_shard, torch, DDP, refused, same
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel as DDP
    import backend_collectives
    import backend_ranks
    from backend_collectives import refused, same


class Collectives(unittest.TestCase):
    def test_two_ranks(self):
        backend_ranks.run(2, backend_collectives.collectives)

    def test_three_ranks(self):
        backend_ranks.run(3, backend_collectives.collectives)


def trained(steps=4):
    """The weights after some steps of DDP, in several buckets, with buffers and a gradient hook of Python's."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(), torch.nn.Linear(300, 1))
    ddp = DDP(model, bucket_cap_mb=0.002, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        x = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        ddp(x).square().mean().backward()
        optimizer.step()
    return torch.cat([value.reshape(-1).double() for value in model.state_dict().values()])


def trainings(_rank):
    backend_ranks.init("gloo", store="gloo")
    theirs = trained()
    dist.destroy_process_group()
    for backend in ("lockstep", "cpu:lockstep", "lockstep"):  # the last by the same store again
        backend_ranks.init(backend, store=backend)
        same(trained(), theirs)
        dist.destroy_process_group()


class Training(unittest.TestCase):
    def test_ddp_has_the_bits_of_gloo(self):
        backend_ranks.run(2, trainings)

    def test_fsdp_and_checkpoints_are_unchanged(self):
        with tempfile.TemporaryDirectory() as folder:
            backend_ranks.run(2, sharded, folder)


def sharded(rank, folder):
    """FSDP on the CPU, saved and loaded by torch.distributed.checkpoint."""
    backend_ranks.init()

    def model():
        torch.manual_seed(0)
        return fully_shard(torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 1)))

    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    plain = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 1))
    torch.manual_seed(0)
    for module in plain:
        module.reset_parameters()
    same_optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(3):
        x = torch.ones(4, 6) * (rank + 1 + step)
        for each, its in ((net, optimizer), (plain, same_optimizer)):
            its.zero_grad()
            each(x).square().mean().backward()
            if each is plain:
                for parameter in plain.parameters():
                    dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
            its.step()
    for mine, other in zip(net.parameters(), plain.parameters()):
        torch.testing.assert_close(mine.full_tensor(), other)
    checkpoint.save({"net": net.state_dict()}, checkpoint_id=folder)
    again = model()
    state = {"net": again.state_dict()}
    checkpoint.load(state, checkpoint_id=folder)
    for mine, other in zip(net.parameters(), again.parameters()):
        same(mine.full_tensor(), other.full_tensor())


def killed(rank, said="rank 1, "):
    backend_ranks.init()
    group = dist.new_group([1, 2])
    told = pathlib.Path(os.environ["BACKEND_RANKS"] + "told")
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:  # a group within the job tells by the job's numbers
        refused(dist.DistBackendError, said, dist.all_reduce, torch.ones(1), group=group)
        told.touch()
    launchers.wait_until(told.exists, "rank 2 has heard of it")
    refused(dist.DistBackendError, said, dist.all_reduce, torch.ones(1))
    refused(dist.DistBackendError, said, lambda: dist.all_reduce(torch.ones(70_000), async_op=True))


def late(rank):
    backend_ranks.init(timeout=datetime.timedelta(seconds=1))
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        refused(dist.DistBackendError, "the collective has not ended within 10 ms",
                lambda: work.wait(datetime.timedelta(milliseconds=10)))
        refused(dist.DistBackendError, "rank 1", work.wait)
        pathlib.Path(os.environ["BACKEND_RANKS"] + "done").touch()
    launchers.wait_until(pathlib.Path(os.environ["BACKEND_RANKS"] + "done").exists, "rank 0 has given up")


def missing(rank):
    if rank == 0:
        refused(RuntimeError, "lockstep: rank 1 did not come to the process group within 1 s", backend_ranks.init,
                timeout=datetime.timedelta(seconds=1))


def missing_in_a_part(rank):
    backend_ranks.init()
    done = pathlib.Path(os.environ["BACKEND_RANKS"] + "done")
    if rank == 1:
        refused(RuntimeError, "lockstep: rank 2 did not come to the process group within 1 s", dist.new_group, [1, 2],
                timeout=datetime.timedelta(seconds=1))
        done.touch()
    launchers.wait_until(done.exists, "rank 1 has waited")


def by_agents_store(port, seconds):
    """As under torchrun, whose agent keeps the store when it starts ranks again."""
    dist.init_process_group("lockstep", store=dist.TCPStore("127.0.0.1", port, is_master=False), rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]), timeout=datetime.timedelta(seconds=seconds))


def comes_alone(rank, port):
    if rank == 0:
        refused(RuntimeError, "lockstep: rank 1 did not come to the process group within 1 s", by_agents_store, port, 1)


def come_again(rank, port):
    by_agents_store(port, 20)
    gathered = [None, None]
    dist.all_gather_object(gathered, rank)
    assert gathered == [0, 1], gathered


def apart(rank):
    if rank == 1 and ctypes.CDLL(None).unshare(two_networks.CLONE_NEWUSER | two_networks.CLONE_NEWNET) != 0:
        raise OSError("unshare: this test needs namespaces of users and networks")
    refused(ValueError, " in another namespace; the ranks of a node need to follow one another in a lockstep process",
            backend_ranks.init, timeout=datetime.timedelta(seconds=20))


def disagree(rank):
    backend_ranks.init()
    refused(RuntimeError, "ranks disagree: rank", dist.all_reduce, torch.ones(1 + rank))


def unheard(rank):
    """Each makes of the same two numbers what it has asked for."""
    os.environ["LOCKSTEP_CHECK_CALLS"] = "0"
    backend_ranks.init()
    tensor = torch.full((2,), 1.0 + rank)
    dist.all_reduce(tensor, dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)
    assert tensor.tolist() == ([2, 2] if rank else [3, 3]), tensor


def leave(rank):
    backend_ranks.init()
    if rank == 1:
        dist.destroy_process_group()
        refused(ValueError, "Default process group has not been initialized", dist.barrier)
    else:
        refused(dist.DistBackendError, "rank 1", dist.barrier)


def forks(rank):
    backend_ranks.init()
    dist.all_reduce(torch.ones(70_000), async_op=True).wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        dist.destroy_process_group()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"a child that leaves the parent's group ended with {status}"
    dist.barrier()


class Failures(unittest.TestCase):
    def test_a_forked_child_ends(self):
        backend_ranks.run(2, forks)

    def test_a_killed_rank_is_named(self):
        backend_ranks.run(3, killed, expect=[1])

    def test_a_late_rank_is_named(self):
        backend_ranks.run(2, late)

    def test_a_rank_that_does_not_come_is_named(self):
        backend_ranks.run(2, missing)
        backend_ranks.run(3, missing_in_a_part)

    def test_ranks_that_are_started_again_meet_where_one_had_not_come_before(self):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        backend_ranks.run(2, comes_alone, store.port)
        for _ in range(2):
            backend_ranks.run(2, come_again, store.port)

    def test_ranks_of_a_node_that_do_not_follow_one_another_are_refused(self):
        if os.system("unshare --user --net true 2>/dev/null") != 0:
            self.skipTest("no namespaces of users and networks here")
        backend_ranks.run(3, apart)

    def test_ranks_that_disagree_hear_both_sides(self):
        backend_ranks.run(2, disagree)

    def test_ranks_that_disagree_hear_nothing_where_that_is_asked_for(self):
        backend_ranks.run(2, unheard)

    def test_a_rank_that_leaves_is_named(self):
        backend_ranks.run(2, leave)


def weights(rank, url):
    """Nobody has named an interface: addresses are those by which ranks reach the store."""
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    dist.init_process_group("lockstep", init_method=url, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    print("weights", hashlib.sha256(trained().numpy().tobytes()).hexdigest())


def stranded(_rank):
    """An interface is named that no machine has; rank 0 says so to all."""
    os.environ["GLOO_SOCKET_IFNAME"] = "none"
    refused(ValueError, "lockstep: LOCKSTEP_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) none: no interface here has this name",
            backend_ranks.init, timeout=datetime.timedelta(seconds=20))


class Nodes(unittest.TestCase):
    """Ranks on two machines: `aab` are two on the one and the third on the other."""

    @classmethod
    def setUpClass(cls):
        cls.networks = two_networks.TwoNetworks()
        cls.addClassCleanup(cls.networks.end)

    def run_on(self, machines, program, *arguments, expect=()):
        return backend_ranks.run(len(machines), self.networks.place, machines, program, *arguments, expect=expect)

    def test_ddp_has_the_bits_of_gloo(self):
        self.run_on("ab", trainings)

    def test_ddp_has_the_bits_of_one_node(self):
        texts = backend_ranks.run(3, weights, f"tcp://127.0.0.1:{launchers.free_port()}")
        texts += self.run_on("aab", weights, "tcp://10.77.0.1:29500")
        found = [re.findall(r"^weights (\w+)$", text, re.M) for text in texts]
        self.assertEqual([len(one) for one in found], [1] * 6, texts)
        self.assertEqual(found[3:], found[:3])  # by rank: each has running means of its own

    def test_collectives(self):
        self.run_on("aab", backend_collectives.collectives, 2)

    def test_a_killed_rank_is_named(self):
        for machines in ("aab", "abb"):
            with self.subTest(machines):
                self.run_on(machines, killed, "rank 1", expect=[1])

    def test_a_late_rank_is_named(self):
        self.run_on("ab", late)

    def test_ranks_that_disagree_hear_both_sides(self):
        self.run_on("ab", disagree)

    def test_ranks_that_disagree_hear_nothing_where_that_is_asked_for(self):
        self.run_on("ab", unheard)

    def test_an_interface_that_is_not_there_is_told_on_all_ranks(self):
        self.run_on("ab", stranded)


class Guide(unittest.TestCase):
    """What docs/guide/python.md shows, from the wheel that it makes."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        text = GUIDE.read_text()
        cls.commands = re.findall(r"^(?:pip|lockstep|torchrun) .*$", text, re.M)
        cls.train, cls.spawn, _ = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        cls.site = cls.folder / "site"
        cls.environment = launchers.clean_environment(
            PYTHONPATH=f"{cls.site}:{os.environ.get('PYTHONPATH', '')}", PATH=f"{cls.site}/bin:{os.environ['PATH']}",
            TMPDIR=str(cls.folder))
        cls.install()

    @classmethod
    def install(cls):
        words = shlex.split(cls.commands.pop(0))
        wheels = list((launchers.BIN.parent / "wheel").glob(pathlib.Path(words[-1]).name))
        assert words[:2] == ["pip", "install"] and len(wheels) == 1, (words, wheels)
        subprocess.run([sys.executable, "-m", *words[:2], "--quiet", "--no-deps", "--no-index", "--target", cls.site, wheels[0]],
                       check=True, timeout=100, env=cls.environment)

    def run_script(self, words, text):
        script = self.folder / "train.py"
        script.write_text(text)
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_scripts_run_under_both_launchers(self):
        self.assertEqual([shlex.split(command)[0] for command in self.commands], ["lockstep", "torchrun"])
        for command in self.commands:
            with self.subTest(command):
                words = shlex.split(command)
                if words[0] == "torchrun":
                    words[:1] = launchers.COMMANDS["torchrun"]["run"]
                self.assertRegex(self.run_script(words, self.train), r"^loss 0\.\d{4} on 2 ranks\n$")

    def test_scripts_run_on_several_nodes(self):
        if subprocess.run([*two_networks.ALONE, "true"], check=False, capture_output=True, timeout=30).returncode != 0:
            self.skipTest("two machines need namespaces of users and networks")
        script = "PATH=$PATH:/usr/sbin:/sbin\n" + launch_ddp_test.TWO_MACHINES
        words = [*two_networks.ALONE, "sh", "-c", script, "sh", f"{self.site}/bin/lockstep", "train.py"]
        self.assertEqual(self.run_script(words, self.train), self.run_script(shlex.split(self.commands[0]), self.train))

    def test_scripts_run_under_spawn(self):
        text = self.spawn.replace(":29500", f":{launchers.free_port()}")
        self.assertNotEqual(text, self.spawn)
        self.assertEqual(self.run_script([sys.executable, "train.py"], text), "done\n")


if __name__ == "__main__":
    unittest.main()
