"""What benchmarks/python computes: whose turn it is, and a page that is held to its targets."""
import contextlib
import io
import unittest

from drivers_test import of

MACHINE = {"cpu": "a CPU", "cores": 2, "kernel": "6", "load": 0.1, "memory_bytes": 2**34}


def reduce_row(name, kind, seconds, shared=False):
    return {"name": name, "kind": kind, "shared": shared, "calls": 3, "seconds": seconds}


def reduced(size, gloo, fake, ordinary, shared):
    return {"name": size, "contenders": [
        reduce_row("gloo", "installed", gloo), reduce_row("fake", "floor", [fake] * 4),
        reduce_row("lockstep", "ours", [ordinary] * 4), reduce_row("lockstep, shared", "ours", [shared] * 4, True)]}


def trained(name, kind, way, seconds):
    return {"name": name, "kind": kind, "way": way, "precision": "fp32", "steps": 8, "spread": [seconds] * 3,
            "rounds": [seconds] * 2}


def whole(ordinary=6.5e-6, gloo=(2.1e-4,) * 4, tuned=1.05e-3):
    steps = {"name": "mlp", "contenders": [
        trained("DDP on gloo, as installed", "installed", "as installed", 3e-3),
        trained("DDP on lockstep, as installed", "ours", "as installed", 1.5e-3),
        trained("noop, as installed", "floor", "as installed", 1.2e-3),
        trained("DDP on lockstep, tuned", "ours", "tuned", tuned), trained("noop, tuned", "floor", "tuned", 1e-3)]}
    return {"machine": MACHINE, "commit": "1234567 (code 00)", "command": "a command", "quick": False,
            "versions": {"torch": "2", "python": "3"}, "workloads": [steps],
            "reduces": [reduced("4 B", list(gloo), 5e-6, ordinary, 4e-6),
                        reduced("64 KiB", list(gloo), 5e-6, 1e-5, 1e-6), reduced("25 MiB", [1.5e-2] * 4, 5e-6, 6e-3, 2e-3)]}


class Page(unittest.TestCase):
    def setUp(self):
        self.report = of("python", "report")

    def test_is_held_to_its_targets(self):
        page = self.report.verdicts(whole())
        self.assertIn("| all-reduce of 4 B | at most 2 µs more than `fake` | +1.50 µs: 6.50 µs of 5.00 µs | yes |", page)
        self.assertIn("of 64 KiB, ordinary tensor | 20 times as fast as gloo | 21.0 times: 10.00 µs of 210 µs | yes |", page)
        self.assertIn("| 3 times as fast as gloo | 2.5 times: 6.00 ms of 15.00 ms | no |", page)
        self.assertIn("of 25 MiB, `shared_empty` | 6 times as fast as gloo | 7.5 times: 2.00 ms of 15.00 ms | yes |", page)
        self.assertIn("| 1.25 times: 1.50 ms of 1.20 ms | no |", page)
        self.assertIn("| 1.05 times: 1.05 ms of 1.00 ms | yes |", page)

    def test_misses_what_it_misses(self):
        page = self.report.verdicts(whole(ordinary=8e-6, tuned=1.2e-3))
        self.assertIn("| +3.00 µs: 8.00 µs of 5.00 µs | no |", page)
        self.assertIn("| 1.20 times: 1.20 ms of 1.00 ms | no |", page)

    def test_says_that_gloo_varies(self):
        page = self.report.verdicts(whole(gloo=(1e-4, 1e-4, 4e-4, 4e-4)))
        self.assertIn("times: 10.00 µs of 250 µs (gloo is not steady) | yes |", page)

    def test_has_a_row_for_everybody(self):
        page = self.report.markdown(whole())
        self.assertIn("| 4 B | fake | 5.00 µs | 5.00 µs to 5.00 µs | 4 | 3 |", page)
        self.assertIn("batch 32 per process, SGD | noop, tuned | 1.00 ms | 1.00 ms-1.00 ms | 8 |", page)
        self.assertNotIn("quick run", page)
        self.assertIn("quick run", self.report.markdown({**whole(), "quick": True}))


class Ranks:
    """A job of two that notes what it is asked."""

    def __init__(self):
        self.asked, self.told = [], []

    def ask(self, command):
        self.asked.append(command)
        if command["do"] == "all_reduce":
            return [{"seconds": [1.0, 2.0, 9.0]}, {"seconds": [3.0, 4.0, 5.0]}]
        return [{"times": [float(at) for at in range(command["steps"] + 1)]},
                {"times": [at + 0.5 for at in range(command["steps"] + 1)]}]

    def tell(self, command):
        self.told.append(command)


class Driver(unittest.TestCase):
    def setUp(self):
        self.python = of("python", "python")
        self.job = Ranks()

    def test_a_turn_is_the_slower_rank_s_median(self):
        with contextlib.redirect_stderr(io.StringIO()):
            found = self.python.all_reduces(self.job, "64 KiB", 3)
        self.assertEqual([row["seconds"] for row in found["contenders"]], [[4.0] * 3] * 4)
        self.assertEqual({(command["elements"], command["calls"]) for command in self.job.asked}, {(16384, 40)})
        who = [(command["group"], command["shared"]) for command in self.job.asked]
        self.assertEqual(len(set(who[:4])), 4, "somebody has not warmed up")
        self.assertEqual(len(set(who[4::4])), 3, "somebody begins twice")
        self.assertEqual(self.job.told, [{"forget": True}])

    def test_sums_stay_below_the_largest_float(self):
        for _, calls in self.python.SIZES.values():
            self.assertLess(calls + 1, 127)

    def test_each_way_has_a_step_with_a_hook_that_does_nothing(self):
        with contextlib.redirect_stderr(io.StringIO()):
            found = self.python.steps_of(self.job, "mlp", 2, 3.0)
        kinds = {(row["way"], row["kind"]) for row in found["contenders"]}
        self.assertEqual(kinds, {("as installed", kind) for kind in ("installed", "ours", "floor")}
                         | {("tuned", kind) for kind in ("tuned", "ours", "floor")})
        floor = {command["group"] for command in self.job.asked if command["noop"]}
        self.assertEqual(floor, {"lockstep"})
        # A second each: three steps make a turn, and one more that does not count.
        self.assertEqual({command["steps"] for command in self.job.asked[12:]}, {4})
        self.assertEqual([row["steps"] for row in found["contenders"]], [6] * 6)


if __name__ == "__main__":
    unittest.main()
