"""What benchmarks/comm computes of contenders across two nodes."""
import argparse
import contextlib
import io
import pathlib
import subprocess
import tempfile
import time
import unittest

from drivers_test import of


class Network:
    """Two ends of a wire over which as many bytes have gone whenever it is asked."""

    def __init__(self, across, bytes_of_a_turn):
        self.across, self.each, self.so_far = across, bytes_of_a_turn, 0

    def sent(self):
        self.so_far += self.each
        return [self.across.wire.Sent(self.so_far, 1), self.across.wire.Sent(0, 1)]


class Job:
    def __init__(self, across, name, column="ours", fails_in=None):
        self.kind = across.Kind(name, column, ["true"])
        self.fails_in, self.turns = fails_in, []

    def lines(self):
        return ["ready\n"] * 2

    def turn(self, elements, calls):
        self.turns.append((elements, calls))
        if len(self.turns) == self.fails_in:
            raise SystemExit("bench: it is gone")
        return [0.01] * calls


def quietly(call, *arguments):
    with contextlib.redirect_stderr(io.StringIO()):
        return call(*arguments)


class Turns(unittest.TestCase):
    def setUp(self):
        self.across = of("comm", "across")

    def taken(self, everyone, bytes_of_a_turn=1 << 20, size=4, until=1000.0):
        case = self.across.Case("a case", size, 40, 3)
        network = Network(self.across, bytes_of_a_turn)
        contenders = [self.across.Contender(job) for job in everyone]
        return quietly(self.across.take_turns, contenders, network, case, time.monotonic() + until)

    def test_are_short_and_the_first_does_not_count(self):
        jobs = [Job(self.across, name) for name in "abc"]
        rows = self.taken(jobs)
        self.assertEqual([len(job.turns) for job in jobs], [4] * 3)
        self.assertEqual(jobs[0].turns, [(1, 5)] + [(1, 6)] * 3)  # 0.06 s of calls of 0.01 s
        self.assertEqual([row["calls"] for row in rows], [18] * 3)
        self.assertAlmostEqual(rows[0]["wire"], (1 << 20) / 6)

    def test_who_fails_has_no_more_and_no_figure(self):
        jobs = [Job(self.across, "lasts"), Job(self.across, "fails", fails_in=3)]
        lasts, fails = self.taken(jobs)
        self.assertEqual((lasts["calls"], lasts["why"]), (18, ""))
        self.assertEqual((fails["seconds"], fails["why"], len(jobs[1].turns)), ([], "bench: it is gone", 3))

    def test_what_does_not_cross_the_wire_is_no_figure(self):
        around, = self.taken([Job(self.across, "by shared memory")], bytes_of_a_turn=1000, size=64 << 10)
        self.assertEqual(around["seconds"], [])
        self.assertEqual(around["why"], "200 bytes have crossed the wire for a tensor of 65536")

    def test_who_has_no_time_says_so(self):
        late, = self.taken([Job(self.across, "late")], until=-1.0)
        self.assertEqual((late["seconds"], late["why"]), ([], "no time left"))


class Commands(unittest.TestCase):
    def setUp(self):
        self.across = of("comm", "across")
        options = argparse.Namespace(bin=pathlib.Path("/bin"), library=pathlib.Path("/turns.so"))
        peers = {"openmpi": pathlib.Path("/open"), "mpich": pathlib.Path("/mpich")}
        self.kinds = {kind.name: kind for kind in self.across.kinds(options, peers, pathlib.Path("/there"), 2)}

    def test_meet_on_both_nodes(self):
        other = {"is_host=1": "is_host=0", "10.77.0.1": "10.77.0.2", "GLOO_SOCKET_IFNAME=va": "GLOO_SOCKET_IFNAME=vb"}
        for name in ("Gloo, torchrun", "Gloo, C++", "lockstep", "lockstep, flat"):
            kind = self.kinds[name]
            self.assertEqual([other.get(word, word) for word in kind.command], kind.second)

    def test_say_what_they_are(self):
        self.assertEqual([(kind.name, kind.kind) for kind in self.kinds.values()],
                         [("Gloo, torchrun", "installed"), ("Gloo, C++", "tuned"), ("Open MPI", "tuned"),
                          ("MPICH", "tuned"), ("lockstep", "ours"), ("lockstep, flat", "ours")])
        self.assertEqual(self.kinds["lockstep, flat"].command[-1], "--flat")
        for name, peer in (("Open MPI", "/open"), ("MPICH", "/mpich")):
            self.assertEqual((self.kinds[name].command[-3], self.kinds[name].second), (peer, []))

    def test_reach_the_other_node_by_any_remote_shell_s_arguments(self):
        """As ssh and rsh are called; what they would start is a word of a shell, or many."""
        script = self.across.THERE.format(process=1, here="10.77.0.1").replace("exec nsenter", "echo nsenter")
        with tempfile.TemporaryDirectory() as folder:
            there = pathlib.Path(folder, "there")
            there.write_text(script)
            for words in (["node", "orted", "-mca", "a"], ["-x", "node", "orted", "-mca", "a"],
                          ["node", "-n", "orted -mca a"]):
                said = subprocess.run(["sh", there, *words], capture_output=True, text=True, check=True, timeout=20).stdout
                self.assertTrue(said.startswith("nsenter --target 1 ") and said.endswith(" sh orted -mca a\n"), said)
            said = subprocess.run(["sh", there, "-x", "10.77.0.1", '"echo"', "here"], capture_output=True, text=True,
                                  check=True, timeout=20).stdout
            self.assertEqual(said, "here\n")


class Page(unittest.TestCase):
    def test_compares_ours_with_the_fastest_and_says_why_one_has_no_figure(self):
        def row(name, kind, column, seconds, why=""):
            return {"name": name, "kind": kind, "column": column, "seconds": [seconds] * 4 if seconds else [],
                    "calls": 4 if seconds else 0, "why": why, "wire": 2048}
        contenders = [row("Gloo, torchrun", "installed", "gloo", 8e-4), row("Gloo, C++", "tuned", "gloo tuned", 4e-4),
                      row("Open MPI", "tuned", "openmpi", 2e-4), row("MPICH", "tuned", "mpich", None, "a | b"),
                      row("lockstep", "ours", "ours", 1e-4)]
        page = of("comm", "report").across_page([
            {"ranks": 2, "mpich": "4.0.2", "cases": [{"case": "4 B", "bytes": 4, "contenders": contenders}]}])
        self.assertIn("| 4 B | 800.0 µs | 400.0 µs | 200.0 µs | no figure | 100.0 µs | 8.0x | 2.0x |", page)
        self.assertIn("| 4 B | MPICH | none: a / b |", page)
        self.assertIn("| 4 B | lockstep | 100.0 µs | 100.0 µs | 100.0 µs | 4 | 2.0 KiB |", page)
        self.assertIn("MPICH is 4.0.2.", page)
        self.assertNotIn("ours, flat", page)

    def test_has_a_column_for_messages_between_all_ranks_where_they_are_measured(self):
        def row(name, kind, column, seconds):
            return {"name": name, "kind": kind, "column": column, "seconds": [seconds] * 4, "calls": 4, "why": "",
                    "wire": 2048}
        contenders = [row("Gloo, torchrun", "installed", "gloo", 8e-4), row("lockstep", "ours", "ours", 1e-4),
                      row("lockstep, flat", "ours", "flat", 2e-4)]
        page = of("comm", "report").across_page([
            {"ranks": 4, "mpich": "4.0.2", "cases": [{"case": "4 B", "bytes": 4, "contenders": contenders}]}])
        self.assertIn("| Gloo as installed | ours | ours, flat | ours over Gloo |", page)
        self.assertIn("| 4 B | 800.0 µs | 100.0 µs | 200.0 µs | 8.0x | 8.0x |", page)


if __name__ == "__main__":
    unittest.main()
