"""What the benchmarks' drivers in Python compute: fair turns, and pages that say what was measured."""
import argparse
import contextlib
import importlib
import io
import pathlib
import socket
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks"
sys.path.append(str(BENCHMARKS / "support"))
import report_parts  # noqa: E402
import rows  # noqa: E402
import turns  # noqa: E402


def of(folder: str, name: str):
    """A module of a benchmark: several have a report.py."""
    for known in ("report", "contenders", "first_step", "jobs"):
        sys.modules.pop(known, None)
    with mock.patch.object(sys, "path", [str(BENCHMARKS / folder), *sys.path]):
        return importlib.import_module(name)


class Turns(unittest.TestCase):
    def test_each_is_first_once_before_anybody_is_again(self):
        for count in (1, 2, 3, 7):
            everyone = list(range(count))
            orders = [turns.in_order(everyone, number) for number in range(count)]
            self.assertEqual(sorted(order[0] for order in orders), everyone)
            for place in range(count):
                self.assertEqual(sorted(order[place] for order in orders), everyone)

    def test_everybody_warms_up_once_and_has_as_many_turns(self):
        calls = []

        def contender(name):
            def turn():
                calls.append(name)
                return len(calls)
            return turn

        found = turns.take_turns({name: contender(name) for name in "abc"}, 3)
        self.assertEqual(sorted(calls[:3]), ["a", "b", "c"])
        self.assertEqual({name: len(values) for name, values in found.items()}, {"a": 3, "b": 3, "c": 3})
        self.assertEqual(sorted(calls[3::3]), ["a", "b", "c"])
        self.assertFalse({1, 2, 3} & {value for values in found.values() for value in values})

    def test_of_jobs_warm_up_for_an_epoch_and_rotate(self):
        job = of("job", "job")
        ran = []

        def run(contender, epochs):
            ran.append((contender.name, epochs))
            return {"seconds": 1}

        everyone = [job.Contender(name, "tuned", run, []) for name in ("a", "b", "c")]
        with contextlib.redirect_stderr(io.StringIO()):
            found = job.take_turns(everyone, 10, 3)
        self.assertEqual(sorted(ran[:3]), [("a", 1), ("b", 1), ("c", 1)])
        self.assertEqual(sorted(name for name, epochs in ran[3::3] if epochs == 10), ["a", "b", "c"])
        self.assertEqual([len(row["turns"]) for row in found], [3, 3, 3])

    def test_of_jobs_each_fused_one_has_a_turn_beside_the_same_that_is_not(self):
        job = of("job", "job")
        jobs = job.Jobs(pathlib.Path("/bin"), pathlib.Path("/data"), 5)
        flags = {one.name: one.flags for one in job.contenders(jobs, quick=False) if one.kind == "ours"}
        fused = [name for name in flags if name.endswith(", fused")]
        self.assertEqual(len(fused), 2)
        for name in fused:
            self.assertEqual(flags[name], [*flags[name.removesuffix(", fused")], "--fuse"])
        self.assertEqual([one.name for one in job.contenders(jobs, quick=True)], list(job.QUICK))


class FirstStep(unittest.TestCase):
    def test_no_other_command_of_ours_runs_between_the_turns(self):
        first_step = of("launch", "first_step")
        order = []

        def turn(name):
            def run(*_):
                order.append(name)
                return {"seconds": 1.0, "parts": {"until all is ready": 0.5, "first step": 0.5}}
            return run

        def help_of_ours(_):
            order.append("help")
            return 0.1

        contenders = {name: (kind, turn(name)) for name, (kind, _) in first_step.CONTENDERS.items()}
        with mock.patch.multiple(first_step, CONTENDERS=contenders, loading=help_of_ours), \
                mock.patch.object(first_step.commands, "unpack_mnist"):
            found = first_step.measure(pathlib.Path(), pathlib.Path(), 3)
        self.assertEqual(order[:16].count("help"), 0)
        self.assertEqual(order[16:], ["help"] * 3)
        self.assertEqual([len(row["seconds"]) for row in found], [3] * 4)
        self.assertEqual(sorted(order[4:16:4]), sorted(set(order[4:16:4])), "somebody begins twice")
        self.assertEqual(list(found[0]["parts"][0]), ["launcher, libraries", "join, data, model, state", "first step"])


class Pages(unittest.TestCase):
    MACHINE = {"cpu": "a CPU", "cores": 2, "kernel": "6", "load": 0.1, "memory_bytes": 2**34}
    WHOLE = {"machine": MACHINE, "commit": "1234567 (code 00)", "command": "a command", "rounds": 3,
             "versions": {"torch": "2", "python": "3", "mpirun": "4"}}

    def test_name_the_machine_and_what_makes_its_products_fast(self):
        found = report_parts.machine_line({**self.MACHINE, "instruction_sets": ["avx2", "amx_bf16"]})
        self.assertEqual(found, "a CPU with avx2, amx_bf16, 2 cores, 16.0 GiB memory, Linux 6, load 0.10 before")
        self.assertTrue(report_parts.machine_line(self.MACHINE).startswith("a CPU, 2 cores, "))
        names = ", ".join(f'"{name}"' for name in report_parts.INSTRUCTION_SETS)
        self.assertIn(f"{{{names}}}", (BENCHMARKS / "support" / "machine.cpp").read_text(), "reports in C++ name the same")

    def test_all_reduce_says_where_we_are_behind(self):
        def row(name, kind, column, seconds):
            return {"name": name, "kind": kind, "column": column, "seconds": [seconds] * 3}
        columns = ("gloo", "gloo tuned", "mpi", "mpi tuned")
        peers = [row(column, "installed" if column == "gloo" else "tuned", column, 1e-4) for column in columns]
        case = {"case": "1 MiB", "bytes": 1 << 20, "contenders": [
            *peers, row("s", "ours", "staged", 2e-4), row("z", "ours", "zero copy", 1e-5)]}
        page = of("comm", "report").markdown({**self.WHOLE, "took": 1, "worlds": [{"ranks": 2, "cases": [case]}]})
        self.assertIn("Not ahead of the fastest peer: 1 MiB staged (0.50x of gloo).", page)

    def test_all_reduce_is_of_two_four_and_eight_ranks_as_far_as_memory_goes(self):
        comm = of("comm", "comm")
        largest = {ranks: max(comm.cases(ranks, quick=False), key=lambda case: case.bytes).name for ranks in comm.RANKS}
        self.assertEqual(largest, {2: "256 MiB", 4: "256 MiB", 8: "25 MiB"})

    def test_a_constant_matters_where_the_turns_do_not_overlap(self):
        constants = of("constants", "constants")
        rows = constants.parse("barrier                          0.48 us   (p10-p90 0.40-0.60, 2000 calls)\n"
                               "4 KiB, zero copy                 2.05 us   (p10-p90 1.90-2.60, 2000 calls)\n")
        self.assertEqual(rows, {"barrier": 0.48, "4 KiB, zero copy": 2.05})
        world = {"default": {"a": [1.0, 1.1, 1.2], "b": [1.0, 1.0, 1.0]},
                 "--at-once 4096": {"a": [1.5, 1.6, 1.7], "b": [1.01, 1.02, 1.02]},
                 "--at-once 8192": {"a": [0.9, 1.15, 2.0], "b": [0.5, 0.5, 0.6]}}
        self.assertTrue(constants.differs(world, "--at-once 4096", "a"))
        self.assertFalse(constants.differs(world, "--at-once 4096", "b"))  # by 2 %
        self.assertFalse(constants.differs(world, "--at-once 8192", "a"))  # not beyond what turns differ by
        self.assertEqual(constants.verdict(world, "--at-once"), "`--at-once 4096`: a 1.45; `--at-once 8192`: b 0.50")

    def test_the_constants_that_are_tried_are_those_of_the_code(self):
        sources = BENCHMARKS.parent / "lockstep"
        shm = (sources / "comm/shm/shm_group.h").read_text()
        staging = (sources / "comm/shm/staging.h").read_text()
        member = (sources / "base/member.h").read_text()
        defaults = {flag: default for flag, (_, default, _) in of("constants", "constants").CONSTANTS.items()}
        self.assertIn(f"at_once = std::size_t({defaults['--at-once'] >> 10}) << 10", shm)
        self.assertIn(f"std::size_t({defaults['--chunk'] >> 10}) << 10", staging)
        self.assertIn(f"look{{{defaults['--look']}}}", member)
        self.assertIn(f"yield{{{defaults['--yield']}}}", member)
        self.assertIn("compares_calls_ = true;", member)
        self.assertEqual(defaults["--check-calls"], 1)

    def test_a_page_names_a_plot_only_where_one_is_drawn(self):
        for named, write in ((True, report_parts.write_plotted_report), (False, report_parts.write_report)):
            with tempfile.TemporaryDirectory() as folder:
                page = pathlib.Path(folder) / "page"
                write(page, "# A page\n\ntext\n", {})
                self.assertEqual("page.svg" in page.with_suffix(".md").read_text(), named)

    def test_launch_names_the_fastest_peer(self):
        report = of("launch", "report")
        found = [{"name": "lockstep run", "kind": "ours", "seconds": [0.005]},
                 {"name": "a shell", "kind": "floor", "seconds": [0.001]},
                 {"name": "torchrun", "kind": "installed", "seconds": [2.0]},
                 {"name": "mpirun", "kind": "tuned", "seconds": [0.05]}]
        self.assertEqual(report.verdict(found, 30), "`lockstep run` 5.00 ms: 400.0 times as fast as torchrun (target: 30), "
                                                    "10.0 times as fast as the fastest peer, mpirun.")

    def test_nodes_are_held_to_their_targets(self):
        report = of("nodes", "report")
        seconds = {"ours": [0.1, 0.3, 0.2], "installed": [40.0], "tuned": [2.0], "floor": [0.1]}
        found = [{"name": kind, "kind": kind, "seconds": values} for kind, values in seconds.items()]
        page = report.verdicts({name: found for name in ("start", "agents", "worker", "silent", "lost")})
        self.assertIn("| 8 times as fast as torchrun | 10.0 times as fast as tuned | yes |", page)
        self.assertIn("| at most 50 ms more than without a launcher | +100 ms | no |", page)
        self.assertEqual(page.count("| 0.200 s | yes |"), 3)
        self.assertEqual(report.without_figure({"lost": found}), [])
        agree = [{"name": "1000 agents, plainly", "kind": "ours", "turns": 5, "spread": [0.1, 0.2, 0.3]},
                 {"name": "1000 agents, with a key", "kind": "ours", "turns": 5, "spread": [0.9, 1.1, 1.2]}]
        self.assertIn("| 1.100 s | no |", report.verdicts({"membership": agree}))
        self.assertIn("| 1000 agents, plainly | 0.200 | 0.100-0.300 | 5 |", report.table({"membership": agree}))

    def test_a_row_of_nodes_without_a_figure_says_why(self):
        report = of("nodes", "report")
        why = "no line; last words: a | b"
        found = {"lost": [{"name": "lockstep train", "kind": "ours", "seconds": [], "why": why},
                          {"name": "torchrun", "kind": "installed", "seconds": [43.0]}]}
        self.assertIn("| no figure | no |", report.verdicts(found))
        self.assertIn("| lockstep train | none | none | 0 | no line; last words: a / b |", report.table(found))
        self.assertEqual(report.without_figure(found), ["lost"])
        whole = {**self.WHOLE, "took": 1.0, "rows": found}
        self.assertIn("| torchrun | 43.000 | 43.000-43.000 | 1 |", report.markdown(whole))

    def test_who_fails_on_nodes_has_no_more_turns(self):
        nodes = of("nodes", "nodes")
        arguments = argparse.Namespace(bin=pathlib.Path("/bin"), quick=False, rounds=3)
        bench = nodes.Bench(arguments, None, pathlib.Path("/data"), time.monotonic() + 100)
        turns_of_both = []

        def turn(name):
            turns_of_both.append(name)
            if name == "fails" and turns_of_both.count(name) == 2:
                raise nodes.two_nodes.Failed("it is broken")
            return {"seconds": 1.0, "before": 0.5}

        contenders = [nodes.Contender(name, "ours", lambda name=name: turn(name), 10) for name in ("lasts", "fails")]
        contenders.append(nodes.Contender("late", "installed", lambda: turn("late"), 200))
        lasts, fails, late = bench.take_turns(contenders, 3)
        self.assertEqual((lasts["seconds"], lasts["before"], lasts.get("why")), ([1.0] * 3, [0.5] * 3, None))
        self.assertEqual((fails["why"], turns_of_both.count("fails")), ("it is broken", 2))
        self.assertEqual((late["why"], late["seconds"]), ("no time left", []))

    def test_a_job_on_nodes_is_known_by_its_lines(self):
        two_nodes = of("nodes", "two_nodes")
        network = types.SimpleNamespace(on=lambda node: [], clear=lambda: None)
        said = "echo step 1/9; echo begins; echo step 2/9; echo step 3/9"
        with two_nodes.Job(network, [(0, ["sh", "-c", said], None)], time.monotonic() + 30) as job:
            job.find("^begins$", 30)
            self.assertEqual(job.find(r"\bstep (\d+)/", 30)[1][1], "2")
            with contextlib.redirect_stderr(io.StringIO()), \
                    self.assertRaisesRegex(two_nodes.Failed, "last words: step 3/9"):
                job.find("^begins$", 30)

    def test_agents_of_two_nodes_meet_with_the_same_flags(self):
        nodes = of("nodes", "nodes")
        ours = nodes.our_agents(pathlib.Path("/bin"), "2", ["true"])
        self.assertEqual([node for node, _, _ in ours], [0, 1])
        self.assertEqual(ours[0][1], ours[1][1])
        first, second = (command for _, command, _ in nodes.torchrun_agents(nodes.TORCHRUN, "2", ["true"]))
        others = {"is_host=1": "is_host=0", "10.77.0.1": "10.77.0.2"}
        self.assertEqual([others.get(word, word) for word in first], second)
        ranks = [variables["RANK"] for _, _, variables in nodes.by_hand(["true"])]
        self.assertEqual(ranks, ["0", "1", "2", "3"])

    def test_input_names_the_fastest_peer(self):
        contenders = [{"name": "lockstep", "kind": "ours", "rates": [1000.0]},
                      {"name": "torchvision", "kind": "installed", "rates": [10.0]},
                      {"name": "less work", "kind": "floor", "rates": [9000.0]},
                      {"name": "batched", "kind": "tuned", "rates": [800.0]}]
        case = {"title": "a set", "target": 10, "contenders": contenders}
        self.assertIn("| a set | 1,000 | 100.0 | 1.25 | batched | 10 |", of("input", "report").summary([case]))

    def test_commands_can_be_typed(self):
        words = ["x/comm.py", "--commit", "1 (code 2)", "--cases", "1 MiB", "--bin", "/of/a/machine"]
        with mock.patch.object(sys, "argv", words):
            self.assertEqual(report_parts.command_text("comm"),
                             "scripts/python-torch benchmarks/comm/comm.py --cases '1 MiB' --bin machine")


class Link(unittest.TestCase):
    @staticmethod
    def row(name, kind, seconds, sent, **facts):
        return {"name": name, "kind": kind, "seconds": [seconds] * 3, "rounds": [seconds] * 3, "sent": [sent] * 3,
                "packet": 60_000, "limited": kind != "lever", **facts}

    def case(self, name="resnet18_cifar", mine=2.0, sent=45e6):
        exact = {"precision": "fp32"}
        return {"name": name, "told": {"all": 90_000_000, "most": 45_000_000}, "idle": [0, 0], "contenders": [
            self.row("lockstep", "ours", mine, [sent, sent], **exact),
            self.row("lockstep, free", "lever", 1.9, [sent, sent], **exact),
            self.row("lockstep, bf16", "lever", 1.2, [sent, sent], precision="bf16") | {"limited": True},
            self.row("DDP, as installed", "installed", 3.0, [67e6, 67e6], **exact),
            self.row("DDP, tuned", "tuned", 2.7, [67e6, 67e6], **exact),
            self.row("DDP, bf16", "tuned", 1.0, [34e6, 34e6], precision="bf16"),
            self.row("plain sockets", "floor", 0.4, [45e6, 45e6])]}

    def test_is_held_to_its_targets(self):
        report = of("link", "report")
        page = report.verdicts([self.case(), self.case("wide_mlp_sgd")], False)
        self.assertEqual(page.count("| at most 0.70 of flat Gloo's | 0.672: 90.00 MB of 134.00 MB | yes |"), 2)
        self.assertEqual(page.count("| +0.00 %: 90.00 MB of 90.00 MB | yes |"), 2)
        self.assertIn("| 1.05 times 1900 ms (compute 1900, link 360) | yes |", page)
        self.assertIn("| 1.35 times as fast as DDP, tuned | no |", page)

    def test_misses_what_it_misses(self):
        cases = [self.case(mine=2.2, sent=48e6), self.case("wide_mlp_sgd", mine=1.9)]
        page = of("link", "report").verdicts(cases, False)
        self.assertIn("| 0.716: 96.00 MB of 134.00 MB | no |", page)
        self.assertIn("| +6.67 %: 96.00 MB of 90.00 MB | no |", page)
        self.assertIn("| 1.16 times 1900 ms (compute 1900, link 384) | no |", page)
        self.assertIn("| 1.42 times as fast as DDP, tuned | yes |", page)

    def test_of_a_quick_run_the_bytes_alone_count(self):
        page = of("link", "report").verdicts([self.case()], True)
        self.assertEqual((page.count("bytes of a step"), page.count(": a step |")), (2, 0))

    def test_the_page_says_who_had_no_time(self):
        report, case = of("link", "report"), self.case()
        case["contenders"][4] = {**case["contenders"][4], "seconds": [], "rounds": [], "sent": []}
        page = report.markdown({**Pages.WHOLE, "quick": False, "took": 300.0, "workloads": [case]})
        self.assertIn("| ResNet-18 | DDP, tuned | fp32 | no time left | | 0 | | |", page)
        self.assertIn("| ResNet-18 | lockstep | fp32 | 2000 | 2000-2000 | 3 | 45.00, 45.00 | 60,000 |", page)
        self.assertIn("| ResNet-18 | plain sockets |  | 400 |", page)

    def test_counts_what_an_interface_has_sent(self):
        wire = of("link", "wire")
        table = ("Inter-|   Receive                                                |  Transmit\n"
                 " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n"
                 "    lo:       1       2    0    0    0     0          0         0        3       4    0    0\n"
                 "    va:      11      12    0    0    0     0          0         0       13      14    0    0\n")
        self.assertEqual(wire.parse_sent(table, "va"), wire.Sent(13, 14))
        with self.assertRaisesRegex(SystemExit, "no interface vb"):
            wire.parse_sent(table, "vb")

    def test_bytes_of_a_step_are_those_of_the_turn_without_the_idle_ones(self):
        link = of("link", "link")
        sent = iter([[(100, 1), (200, 2)], [(1100, 11), (2200, 22)]])
        wire = types.SimpleNamespace(shape=lambda rate: None,
                                     sent=lambda: [link.wire.Sent(*counts) for counts in next(sent)])
        one = link.Contender("a", "ours", lambda steps: [0.5] * (steps - 1), 3, {"precision": "fp32"})
        turn = one.turn(wire, 5)
        self.assertEqual((turn["bytes"], turn["packets"], turn["seconds"]), ([1000, 2000], 30, [0.5] * 4))
        row = one.results([{**turn, "took": 10.0}], [5.0, 0.0])
        self.assertEqual((row["sent"], row["packet"], row["limited"]), ([[190.0, 400.0]], 100, True))

    def test_who_has_no_time_has_no_turn(self):
        link = of("link", "link")
        wire = types.SimpleNamespace(shape=lambda rate: None, sent=lambda: [link.wire.Sent(0, 0)] * 2)
        everyone = [link.Contender(name, "ours", lambda steps: [1.0], 2, took=took) for name, took in
                    (("quick", 0), ("slow", 1e6))]
        found = link.take_turns(everyone, wire, 2, time.monotonic() + 1000)
        self.assertEqual({name: len(done) for name, done in found.items()}, {"quick": 2, "slow": 0})

    def test_peers_of_pictures_have_our_layout_and_no_single_bucket(self):
        link = of("link", "link")
        peers = dict.fromkeys(link.PEER_JOBS)
        names = {workload: [one.name for one in link.contenders_of(workload, None, peers)] for workload in link.STEPS}
        self.assertEqual(set(names["wide_mlp_sgd"]) - set(names["resnet18_cifar"]), {"DDP, tuned, one bucket"})
        flags = {workload: link.our_agents(pathlib.Path("/bin"), workload)[0][0] for workload in link.STEPS}
        self.assertEqual({workload: "--channels-last" in words for workload, words in flags.items()},
                         {workload: bool(layout) for workload, layout in link.LAYOUT.items()})

    def test_a_job_of_ours_sends_gradients_in_16_bits_where_the_link_is_what_a_step_waits_for(self):
        link = of("link", "link")
        names = [one.name for one in link.contenders_of("wide_mlp_sgd", None, {}, object())]
        self.assertEqual(names, ["lockstep", "lockstep, the link without a rate", "lockstep, gradients sent in bf16"])
        exact, narrow = (link.our_agents(pathlib.Path("/bin"), "wide_mlp_sgd", more)[0][0]
                         for more in link.OURS["wide_mlp_sgd"])
        self.assertNotIn("--compression", exact)
        self.assertEqual(narrow[narrow.index("--compression") + 1], "bf16")

    def test_agents_of_both_nodes_meet(self):
        link = of("link", "link")
        (first, variables), (second, others) = link.peer_agents("installed")
        other = {"is_host=1": "is_host=0", "10.77.0.1": "10.77.0.2"}
        self.assertEqual([other.get(word, word) for word in first], second)
        self.assertEqual((variables["GLOO_SOCKET_IFNAME"], others["GLOO_SOCKET_IFNAME"]), ("va", "vb"))

    def test_plain_bytes_go_both_ways(self):
        plain = of("link", "plain")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            other = threading.Thread(target=lambda: plain.answer(listener.accept()[0]), daemon=True)
            other.start()
            self.assertGreater(plain.seconds("127.0.0.1", listener.getsockname()[1], 3 << 20), 0)
            other.join(30)
            self.assertFalse(other.is_alive())


class Rows(unittest.TestCase):
    def test_the_fastest_of_no_rows_is_none(self):
        self.assertIsNone(rows.best([], lambda row: 0, "ours"))

    def test_steady_is_what_comes_out_alike_again(self):
        self.assertTrue(rows.is_steady([10, 11, 12, 13, 14, 15, 100]))
        self.assertFalse(rows.is_steady([0.4, 0.4, 1.1, 3.5, 4.0]))
        self.assertTrue(rows.is_steady([1, 9]), "of so few nothing can be said")


if __name__ == "__main__":
    unittest.main()
