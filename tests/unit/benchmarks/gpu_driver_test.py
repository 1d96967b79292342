"""What the driver of the benchmark on a GPU computes: turns of processes of which one may fail, idleness, the page."""
import argparse
import contextlib
import io
import pathlib
import sys
import types
import unittest
from unittest import mock

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS / "gpu"), str(BENCHMARKS / "support")]
import gpu  # noqa: E402
import idle  # noqa: E402
import report  # noqa: E402

ANSWERS = "import sys\nfor line in sys.stdin: print(5.0, flush=True)"
BREAKS = "import sys\nsys.stdin.readline()\nprint('lockstep: error: it is broken', file=sys.stderr)\nsys.exit(2)"


class Gpu(unittest.TestCase):
    @staticmethod
    def row(name, kind, ms, ratios=(), **facts):
        return {"name": name, "kind": kind, "eager": kind == "installed", "why": "", "ms": ms, "ratios": list(ratios),
                "first_seconds": 1.0, "watched": {}, **facts}

    def case(self, ours):
        return {"title": "float32", "rows": [
            self.row("eager", "installed", [20.0, 22.0], [1, 1]),
            self.row("compiled", "tuned", [10.0, 11.0], [0.5, 0.5]),
            self.row("a loop", "floor", [9.0, 9.0], [0.4, 0.4]), ours]}

    def test_is_held_to_eager_python_and_not_to_what_is_compiled(self):
        behind = self.row("ddp", "ours", [20.0, 24.0], [1.0, 1.09], watched={"gpm": 0.96, "sms": 0.9, "nvml": 1.0})
        self.assertIn("| float32 | 21.00 (eager) | 22.00 (ddp) | 1.045 | no | 4.0 % | no |",
                      report.goal(self.case(behind)))
        level = self.row("ddp", "ours", [20.0, 20.0], [1.0, 1.0], watched={"gpm": None, "nvml": 0.98})
        self.assertIn("| 20.00 (ddp) | 1.000 | yes | 2.0 % | yes |", report.goal(self.case(level)))
        unseen = self.row("ddp", "ours", [20.0, 20.0], [1.0, 1.0])
        self.assertIn("| yes | not known | not known |", report.goal(self.case(unseen)))

    def test_page_says_who_has_no_figure_and_why(self):
        failed = self.row("ddp", "ours", [], why="exit code 2: a|b")
        whole = {"machine": {"cpu": "a CPU", "cores": 2, "kernel": "6", "load": 0.1, "memory_bytes": 2**34},
                 "gpu": {"device": "a GPU", "memory_bytes": 2**36, "driver": "", "cuda": "13.0", "cudnn": 9},
                 "versions": {"torch": "2", "python": "3"}, "commit": "1234567 (code 00)", "command": "a command",
                 "batch": 64, "rounds": 3, "steps": 15, "seconds": 9.0, "counters": ["no GPM: this GPU has none"],
                 "cases": [self.case(failed)]}
        page = report.markdown(whole)
        self.assertIn("| ddp | none: exit code 2: a/b |", page)
        self.assertIn("| float32 | 21.00 (eager) | no figure | - | no | not known | not known |", page)
        self.assertIn("- no GPM: this GPU has none\n", page)
        self.assertIn("| compiled | 10.50 | 10.00-11.00 | 0.500 (0.500-0.500) |", page)

    def rows(self, programs, deadline=60.0):
        """Of contenders, the first of which stands for eager Python, by the programs that they are."""
        contenders = [gpu.Contender(name, "ours", "" if number else "plain") for number, name in enumerate(programs)]
        arguments = argparse.Namespace(program=pathlib.Path("none"), batch=2, rounds=2, steps=3, warm=1,
                                       deadline=deadline)
        case = gpu.Case.of("none,contiguous")
        command = lambda _, contender, *rest: [sys.executable, "-c", programs[contender.name]]  # noqa: E731
        with mock.patch.object(gpu.Case, "command", command), contextlib.redirect_stderr(io.StringIO()):
            return gpu.Bench(arguments, types.SimpleNamespace(nvml=None)).rows(case, contenders, contenders)

    def test_who_fails_has_no_more_turns_and_the_others_go_on(self):
        eager, lasts, breaks = self.rows({"eager": ANSWERS, "lasts": ANSWERS, "breaks": BREAKS})
        self.assertEqual((eager["ms"], lasts["ms"], lasts["ratios"]), ([5.0] * 2, [5.0] * 2, [1.0] * 2))
        self.assertEqual((lasts["format"], lasts["precision"]), ("channels first", "fp32"))
        self.assertEqual((breaks["ms"], breaks["why"]), ([], "exit code 2: lockstep: error: it is broken"))

    def test_without_eager_python_there_is_no_ratio(self):
        _, ours = self.rows({"eager": BREAKS, "ours": ANSWERS})
        self.assertEqual((ours["ms"], ours["ratios"]), ([5.0] * 2, []))

    def test_what_there_is_no_time_for_is_left_out(self):
        found = self.rows({"eager": ANSWERS, "ours": ANSWERS}, 5.0)
        self.assertEqual([row["why"] for row in found], ["no time left"] * 2)

    def test_each_counter_is_asked_as_long_as_it_answers(self):
        class Query:
            def __init__(self):
                self.metrics = [types.SimpleNamespace(nvmlReturn=0, value=0.0) for _ in range(4)]

        class Error(Exception):
            pass

        def between(query, busy):
            query.metrics[0].value, query.metrics[1].value = busy, 60.0

        def library(busy):
            return types.SimpleNamespace(
                NVMLError=Error, nvmlInit=lambda: None, nvmlSystemGetDriverVersion=lambda: "580.1",
                nvmlDeviceGetHandleByUUID=lambda uuid: uuid, NVML_GPM_METRIC_GRAPHICS_UTIL=1, NVML_GPM_METRIC_SM_UTIL=2,
                nvmlGpmQueryDeviceSupport=lambda handle: types.SimpleNamespace(isSupportedDevice=1),
                nvmlGpmSampleAlloc=object, nvmlGpmSampleGet=lambda handle, sample: None, c_nvmlGpmMetricsGet_t=Query,
                nvmlGpmMetricsGet=lambda query: between(query, busy), NVML_GPM_METRICS_GET_VERSION=1,
                nvmlDeviceGetUtilizationRates=lambda handle: types.SimpleNamespace(gpu=99))

        quick = {"SETTLE_SECONDS": 0.0, "WINDOW_SECONDS": 0.01, "PERIOD_SECONDS": 0.0}
        for busy, found in ((97.5, (0.975, 0.6)), (0.0, (None, None))):
            with mock.patch.dict(sys.modules, pynvml=library(busy)), mock.patch.multiple(idle, **quick):
                meter = idle.Meter("GPU-1")
                watched = meter.watch()
            self.assertEqual((watched["gpm"], watched["sms"], watched["nvml"]), (*found, 0.99))
            self.assertEqual(meter.without, [] if busy else ["no GPM: it counts nothing here"])
            self.assertAlmostEqual(idle.idle(watched), 0.025 if busy else 0.01)


if __name__ == "__main__":
    unittest.main()
