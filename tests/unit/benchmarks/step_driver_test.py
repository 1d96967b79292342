"""What the driver of whole training steps measures: its rows, its jobs, its page."""
import argparse
import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS / "step"), str(BENCHMARKS / "support")]
import contenders  # noqa: E402
import report  # noqa: E402
import step  # noqa: E402

WHOLE = {"machine": {"cpu": "a CPU", "cores": 2, "kernel": "6", "load": 0.1, "memory_bytes": 2**34},
         "commit": "1234567 (code 00)", "command": "a command", "rounds": 3, "versions": {"torch": "2", "python": "3"}}


class StepRows(unittest.TestCase):
    def facts(self, workload):
        peers = [contenders.facts_of_peer(workload, way) for _, _, way in contenders.TUNED[workload]]
        return peers, [contenders.facts_of_ours(workload, flags) for _, flags in contenders.OURS[workload]]

    def test_like_stands_beside_like(self):
        for case in contenders.CASES.values():
            peers, ours = self.facts(case.workload)
            for facts in ours:
                self.assertIn(facts, peers, case.workload)
            self.assertIn(f"batch {case.batch}", case.title)
            self.assertIn("fp32", [facts["precision"] for facts in ours])

    def test_of_each_workload_a_peer_is_compiled(self):
        for case in contenders.CASES.values():
            ways = [way for _, _, way in contenders.TUNED[case.workload]]
            self.assertTrue(any(way.get("compile") for way in ways), case.workload)

    def test_workloads_are_known_on_both_sides(self):
        ours = (BENCHMARKS / "step" / "workload.cpp").read_text()
        peers = (BENCHMARKS / "peer" / "workloads.py").read_text()
        for case in contenders.CASES.values():
            self.assertIn(f'"{case.workload}"', ours)
            self.assertIn(f'"{case.workload}"', peers)

    def test_each_fused_row_stands_beside_the_same_that_is_not(self):
        for workload, rows in contenders.OURS.items():
            known = dict(rows)
            fused = [name for name, flags in rows if "--fuse" in flags]
            self.assertEqual(fused, [name for name in known if name.endswith(", fused")])
            self.assertEqual(len(fused), 2, workload)
            for name in fused:
                self.assertEqual(known[name], [*known[name.removesuffix(", fused")], "--fuse"])
            self.assertNotIn("--fuse", rows[-1][1], "levers are moved in the last row")

    def test_what_levers_are_moved_in_is_measured(self):
        for lever in contenders.LEVERS:
            self.assertLessEqual(set(lever.cases), set(contenders.CASES))

    def test_pictures_come_in_both_formats(self):
        for workload in ("convnet", "resnet18_cifar", "resnet50"):
            for side in self.facts(workload):
                self.assertEqual(len({tuple(facts.items()) for facts in side}), 4)

    def test_gradients_in_bf16_are_no_float32(self):
        facts = contenders.facts_of_peer("wide_mlp_sgd", {"compress": True})
        self.assertEqual(facts, {"precision": "bf16"})


class StepJobs(unittest.TestCase):
    class Job:
        """Notes how it was started, and says that a step takes 2 seconds."""
        started = []
        ended = []

        def __init__(self, command, environment, ranks=2):
            self.ranks = ranks
            self.started.append((command, environment, ranks))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.ended.append(self.ranks)

        def tell(self, command):
            pass

        def ask(self, command):
            times = [2.0 * step for step in range(command["steps"] + 1)]
            return [{"times": times, "weights": 10, "pages": "4 KiB"}] * self.ranks

    def measure(self, name):
        case = step.CASES[name]
        self.Job.started.clear()
        arguments = argparse.Namespace(bin=pathlib.Path("/bin"), quick=False, rounds=2, seconds=0.1)
        with contextlib.ExitStack() as stack, contextlib.redirect_stderr(io.StringIO()), \
                mock.patch.object(step, "Job", self.Job):
            found = step.measure(arguments, name, step.Peers(stack))
        return case, found, self.Job.started

    def test_have_the_ranks_and_threads_of_the_case(self):
        case, found, started = self.measure("convnet_2_threads")
        self.assertEqual((case.ranks, case.threads, found["samples"]), (1, 2, 100))
        self.assertEqual({ranks for _, _, ranks in started}, {1})
        for command, environment, _ in started:
            if "torch.distributed.run" in command:
                self.assertEqual(command[command.index("--nproc-per-node") + 1], "1")
                self.assertIn(environment.get("OMP_NUM_THREADS"), (None, "2"))
            else:
                self.assertEqual(command[command.index("-n") + 1], "1")
                self.assertEqual(command[command.index("--threads") + 1], "2")
        self.assertFalse([row["name"] for row in found["contenders"] if "pinned" in row["name"]])
        self.assertEqual({ranks for _, _, ranks in self.measure("wide_mlp_sgd_4_ranks")[2]}, {4})

    def test_of_other_ranks_end_before_memory_is_needed(self):
        def alive():
            return sum(ranks for _, _, ranks in self.Job.started) - sum(self.Job.ended)

        arguments = argparse.Namespace(bin=pathlib.Path("/bin"), quick=True, rounds=1, seconds=0.1)
        self.Job.started.clear()
        self.Job.ended.clear()
        with contextlib.ExitStack() as stack, contextlib.redirect_stderr(io.StringIO()), \
                mock.patch.object(step, "Job", self.Job):
            peers = step.Peers(stack)
            for name in ("convnet", "encoder"):
                step.measure(arguments, name, peers)
                self.assertEqual(alive(), 2 * 2, "as installed and with tcmalloc, kept for the next case")
            step.measure(arguments, "convnet_4_ranks", peers)
            self.assertEqual(alive(), 2 * 4)
            step.measure(arguments, "resnet50", peers)
            self.assertEqual(alive(), 0)

    def test_sleep_between_their_turns_or_start_anew(self):
        _, found, started = self.measure("encoder")
        self.assertLess(len(started), len(found["contenders"]))
        _, found, started = self.measure("resnet50")
        self.assertEqual(len(started), 3 * len(found["contenders"]))  # to settle, and for two rounds
        for row in found["contenders"]:
            self.assertEqual((row["median"], row["steps"]), (2.0, 2))
        self.assertIn("Each contender started anew", report.section(found))
        self.assertNotIn("Each contender started anew", report.section({**found, "anew": False}))

    def test_what_is_measured_is_shown_before_another_case_fails(self):
        def measure(_, name, __):
            if name == "resnet50":
                raise SystemExit("bench: no answer")
            return {"title": "a net", "samples": 100,
                    "contenders": [trained("fp32", "ours", 0.02, precision="fp32")]}

        said = io.StringIO()
        arguments = argparse.Namespace(workload=["encoder", "resnet50"])
        with contextlib.redirect_stderr(said), mock.patch.object(step, "measure", measure), \
                self.assertRaisesRegex(SystemExit, "no answer"):
            step.measure_all(arguments)
        self.assertIn("## a net", said.getvalue())
        self.assertIn("| lockstep, fp32 | 20.000 |", said.getvalue())

    def test_a_slow_second_step_does_not_make_a_row_one_of_long_steps(self):
        """As of a compiled peer: it would have turns of a single step, the one that brings caches back."""
        asked = []

        class Job:
            def ask(self, command):
                first = sum(asked)
                asked.append(command["steps"])
                took = [0.9 if first + number == 1 else 0.01 for number in range(command["steps"])]
                return [{"times": [sum(took[:number]) for number in range(len(took) + 1)]}]

        contender = step.Contender("compiled", "tuned", lambda: contextlib.nullcontext(Job()), {}, {})
        contender.settle(0.4, anew=False)
        self.assertEqual(contender.cold, 1)
        self.assertIn(contender.steps, (41, 42))  # 0.4 s, and rounding


class Peer(unittest.TestCase):
    """ddp_step.py, for which no torch is needed here."""
    FOREIGN = ("torch", "torch.distributed", "torch.distributed.algorithms.ddp_comm_hooks.default_hooks", "torch.nn",
               "torch.nn.functional", "torch.nn.parallel", "workloads")

    def test_forgets_what_is_compiled_with_the_models(self):
        spec = importlib.util.spec_from_file_location("ddp_step", BENCHMARKS / "peer" / "ddp_step.py")
        peer = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in self.FOREIGN}):
            spec.loader.exec_module(peer)
        peer.dist.get_rank.return_value = 0

        def turn(**way):
            return {"workload": "mlp", "way": way, "steps": 1}

        commands = [turn(compile=True), turn(), {"forget": True}, turn(), {"forget": True}, turn(), {"end": True}]
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(peer, "Trainer") as trainer:
            trainer.return_value.turn.return_value = [0.0, 1.0]
            pathlib.Path(folder, "to.0").write_text("".join(json.dumps(command) + "\n" for command in commands))
            peer.serve(pathlib.Path(folder))
            answers = pathlib.Path(folder, "from.0").read_text().splitlines()
        self.assertEqual([json.loads(answer) for answer in answers], [{"times": [0.0, 1.0]}] * 4)
        self.assertEqual(trainer.call_count, 4)
        self.assertEqual(peer.torch.compiler.reset.call_count, 1)


def trained(name, kind, median, **facts):
    return {"name": name, "kind": kind, "median": median, "p99": median, "rounds": [median], "steps": 3, "weights": 10,
            "pages": "4 KiB", **facts}


PROFILE = {"step_seconds": 0.02, "parts": {"convolution": 0.015, "update": 0.005}, "operators": {"aten::mm": 0.015},
           "limit": {"operators": {"aten::mm": 0.01}, "gflop": 1.0, "peak_gflops": 200.0}}


class Profile(unittest.TestCase):
    def profiled(self, name, contenders, quick=False):
        asked = []

        def measure(_, workload, flags, seconds):
            asked.append((workload, flags, seconds))
            return PROFILE

        arguments = argparse.Namespace(bin=pathlib.Path("/bin"), quick=quick)
        with mock.patch.object(step.profiles, "measure", measure):
            return step.profile(arguments, {"name": name, "contenders": contenders}), asked

    def test_is_of_the_fastest_row_of_ours(self):
        found, asked = self.profiled("convnet_4_ranks", [
            trained("fp32, channels-last", "ours", 0.03), trained("fp32, channels-last, fused", "ours", 0.02),
            trained("tuned: fp32, channels-last", "tuned", 0.01)])
        self.assertEqual(asked, [("convnet", ["--channels-last", "--fuse", "--ranks", "4", "--threads", "1"],
                                  step.PROFILE_SECONDS)])
        self.assertEqual((found["name"], found["ranks"], found["batch"]), ("fp32, channels-last, fused", 4, 100))

    def test_of_long_steps_does_not_wait_until_stores_are_chosen(self):
        _, asked = self.profiled("resnet50", [trained("bf16, channels first", "ours", 2.0)])
        self.assertEqual(asked[0][1][-2:], ["--settle", "2"])


class Page(unittest.TestCase):
    def test_steps_compare_like_with_like(self):
        first, last = {"format": "channels first"}, {"format": "channels-last"}
        contenders = [
            trained("as installed", "installed", 0.05, precision="fp32", **first),
            trained("tuned: fp32, channels first", "tuned", 0.04, precision="fp32", **first),
            trained("tuned: fp32, channels-last", "tuned", 0.03, precision="fp32", **last),
            trained("fp32, channels first", "ours", 0.036, precision="fp32", **first),
            trained("fp32, channels-last", "ours", 0.025, precision="fp32", **last),
            trained("fp32, channels-last, fused", "ours", 0.02, precision="fp32", **last)]
        workload = {"name": "net", "title": "a net", "samples": 100, "targets": (2, 1), "contenders": contenders,
                    "profile": {**PROFILE, "name": "fp32, channels-last", "ranks": 2, "batch": 50}}
        page = report.markdown({**WHOLE, "workloads": [workload]})
        self.assertIn("| fp32, channels first | 40.000 (fp32, channels first) | 36.000 (fp32, channels first) | 1.11 |",
                      page)
        self.assertIn("| fp32, channels-last | 30.000 (fp32, channels-last) "
                      "| 20.000 (fp32, channels-last, fused) | 1.50 |", page)
        self.assertIn("| a net, fp32 | 50.000 | 30.000 (fp32, channels-last) | 20.000 (fp32, channels-last, fused) | 5,000 "
                      "| 2.50 | 1.50 | 2, 1 |", page)
        self.assertIn("### a net, fp32, channels-last\n\nA step of 2 x 50 samples, without input: 20.00 ms on rank 0.", page)
        self.assertIn("| convolution | 15.000 | 75.0 % |", page)
        self.assertIn("take 10.00 ms, 50 % of the step (aten::mm 10.00). They are 1.00 GFLOP per process; at the 200 "
                      "GFLOP/s of a large matrix product here they would take 5.00 ms.", page)


if __name__ == "__main__":
    unittest.main()
