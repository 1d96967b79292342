"""PyTorch's own tests of torch.distributed, from the installed package, against the backend "lockstep" (python/).

  pytorch_own_tests.py [--every] [--debug LEVEL] [--backend NAME] [TEST...]

Nothing of them is copied. pytorch_own_tests.txt has each of them, with the numbers of ranks with which it passes or the
reason why it is left out. As a module for run_tests.py, which CTest calls, those that need no GPU run with three ranks,
or with as many as they need. --every runs all with each number of ranks that is listed, those for GPUs with their
tensors on the CPU, and those that are left out, of which one that passes is told; --debug with that
TORCH_DISTRIBUTED_DEBUG; --backend gloo shows what PyTorch's own backend does here. Exit code 1 when one that passes by
the list has failed, or one that PyTorch has is not in it.

PyTorch skips tests by the name of a backend that it knows, and by GPUs that are there. Here none is skipped for that.
"""
import argparse
import dataclasses
import importlib
import importlib.util
import logging
import os
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

import launchers
from warm_python import die_with

LIST = launchers.HERE / "pytorch_own_tests.txt"
PACKAGE = launchers.BIN.parent / "python"
MOST_RANKS = 4
USUAL_RANKS = 3
SECONDS = 60
# Headings in the list; under any other there is what is left out.
PASSING = ("passes", "passes with its tensors on the CPU")
# Whose bodies compare a CPU and a GPU by the backend's name. It is said to be gloo's once the group is there.
BY_NAME = "test_accumulate_gradients_no_sync"


@dataclasses.dataclass
class Test:
    ranks: list[int]  # with how many it passes
    on_cpu: bool  # by without_gpu.py
    left_out: str = ""  # why

    def usual_ranks(self) -> int:
        return USUAL_RANKS if USUAL_RANKS in self.ranks else max(self.ranks)


def read_list() -> dict[str, Test]:
    tests, heading = {}, ""
    for line in LIST.read_text().splitlines():
        name, *numbers = line.split() or ["#"]
        if line.startswith("["):
            heading = line.strip("[]")
        elif name != "#":
            if name in tests:
                raise ValueError(f"{LIST}: {name} is there twice")
            passes = heading in PASSING
            tests[name] = Test([int(number) for number in numbers] if passes else [MOST_RANKS], heading != PASSING[0],
                               "" if passes else heading.removeprefix("left out: "))
    return tests


def why_not() -> str:
    """Why nothing can be run here; empty when it can."""
    if importlib.util.find_spec("torch") is None:
        return "scripts/python-torch has no torch: run scripts/bootstrap --tests"
    if not (PACKAGE / "lockstep_torch" / "__init__.py").exists():
        return "lockstep_torch is not built: `cmake --build build --target python` does it or says why"
    return ""


def unskipped(decorate):
    """PyTorch's `skip_but_pass_in_sandcastle` for reasons that are no backend's or device's: the number of ranks."""
    return lambda reason: decorate(reason) if "world size" in reason else lambda function: function


def load_theirs(backend: str):
    """The module of PyTorch's tests, which looks for a backend and a number of ranks when it is loaded."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(MOST_RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500",
                      CUDA_VISIBLE_DEVICES="", DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(SECONDS))
    if importlib.util.find_spec("expecttest") is None:  # of which these tests use nothing
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
    sys.path.insert(0, str(PACKAGE))
    importlib.import_module("lockstep_torch")
    from torch.testing._internal import common_distributed, common_utils
    common_distributed.logger.setLevel(logging.CRITICAL)  # it tells what the exception has, too
    for feature in common_distributed.DistTestCases.backend_feature.values():
        feature.add(backend)
    skip = unskipped(common_utils.skip_but_pass_in_sandcastle)
    always = lambda *_, **__: lambda function: function  # noqa: E731
    with unittest.mock.patch.multiple(
            common_utils, skip_but_pass_in_sandcastle=skip,
            skip_but_pass_in_sandcastle_if=lambda is_so, reason: skip(reason) if is_so else always()), \
            unittest.mock.patch.multiple(
                common_distributed, skip_if_lt_x_gpu=always, skip_if_no_gpu=lambda function: function,
                skip_if_small_worldsize=lambda function: function):
        theirs = importlib.import_module("torch.testing._internal.distributed.distributed_test")
    for known in (theirs.PROFILING_SUPPORTED_BACKENDS, theirs.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        known.append(backend)
    return theirs


class Ours:
    """What differs from how PyTorch runs its tests: the ranks are forked, for to import torch takes seconds, and print
    into files, which are shown when a test has failed."""

    def setUp(self):
        os.environ["WORLD_SIZE"] = str(self.ranks)
        super().setUp()
        self.outputs = tempfile.TemporaryDirectory()
        os.environ["OWN_TESTS_OUTPUTS"] = self.outputs.name
        os.environ["OWN_TESTS_PARENT"] = str(os.getpid())
        self._start_processes(importlib.import_module("torch.multiprocessing").get_context("fork").Process)

    def tearDown(self):
        super().tearDown()
        self.outputs.cleanup()

    @classmethod
    def _run(cls, rank, test_name, *arguments, **named):
        die_with(int(os.environ["OWN_TESTS_PARENT"]))
        output = os.open(os.path.join(os.environ["OWN_TESTS_OUTPUTS"], str(rank)), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.modules["torch"].set_num_threads(1)
        super()._run(rank, test_name, *arguments, **named)

    def run_test(self, test_name, pipe):
        if read_list()[test_name].on_cpu:
            importlib.import_module("without_gpu").pretend(self.ranks)
        if test_name.startswith(BY_NAME):
            self.theirs.BACKEND = "gloo"
        super().run_test(test_name, pipe)

    def _join_processes(self, fn):
        try:
            with unittest.mock.patch("builtins.print"):  # what the exception says, too
                super()._join_processes(fn)
        except unittest.SkipTest as skip:  # by an exit code; nothing that is run here may be left out unseen
            raise AssertionError(f"skipped by a rank: {skip}") from None
        except Exception:
            for file in sorted(pathlib.Path(self.outputs.name).iterdir()):
                text = file.read_text(errors="backslashreplace")
                print(f"-- rank {file.name} of {self.id()}\n{text}", file=sys.stderr)
            raise


def make_class(theirs, ranks: int) -> type:
    bases = (Ours, theirs.TestDistBackend, theirs.DistributedTest._DistTestBase)
    return type(f"Ranks{ranks}", bases, {"ranks": ranks, "theirs": theirs, "__module__": "pytorch_own_tests"})


class List(unittest.TestCase):
    """Made after the module has been loaded."""
    names: list[str] = []
    skipped: list[str] = []  # by a decorator, though listed as passing

    def test_it_has_each_test_of_pytorch(self):
        self.assertEqual(sorted(read_list()), sorted(self.names))
        self.assertEqual(self.skipped, [])


class Missing(unittest.TestCase):
    def test_backend(self):
        launchers.require_torch()
        self.skipTest(why_not())


def load_tests(loader, _standard, _pattern) -> unittest.TestSuite:
    """Unittest's protocol: what CTest runs."""
    if why_not():
        return loader.loadTestsFromTestCase(Missing)
    theirs = load_theirs("lockstep")
    classes = {ranks: make_class(theirs, ranks) for ranks in range(2, MOST_RANKS + 1)}
    List.names = loader.getTestCaseNames(classes[MOST_RANKS])
    suite = loader.loadTestsFromTestCase(List)
    for name, test in read_list().items():
        if not test.left_out and hasattr(getattr(classes[MOST_RANKS], name, None), "__unittest_skip__"):
            List.skipped.append(name)
        if name in List.names and not test.on_cpu:  # List tells of the others
            suite.addTest(classes[test.usual_ranks()](name))
    return suite


def outcome(test: unittest.TestCase) -> tuple[str, str]:
    result = unittest.TestResult()
    test.run(result)
    if result.failures or result.errors:
        return "failed", (result.failures + result.errors)[0][1]
    return ("skipped", result.skipped[0][1]) if result.skipped else ("passed", "")


def run_every(backend: str, names: list[str]) -> int:
    theirs = load_theirs(backend)
    classes = {ranks: make_class(theirs, ranks) for ranks in range(2, MOST_RANKS + 1)}
    tests = read_list()
    all_names = unittest.defaultTestLoader.getTestCaseNames(classes[MOST_RANKS])
    wrong = [f"{name}: not in {LIST.name}" for name in all_names if name not in tests]
    for name in names:
        if name not in tests:
            sys.exit(f"{name} is not in {LIST.name}")
    for name in names or [name for name in all_names if name in tests]:
        for ranks in tests[name].ranks:
            kind, text = outcome(classes[ranks](name))
            told = f"{name} with {ranks} ranks: {kind}"
            if tests[name].left_out and kind == "passed":
                told += f", and is left out: {tests[name].left_out}"
            if not tests[name].left_out and kind != "passed":
                wrong.append(told)
                told += f"\n{text}"
            print(told, flush=True)
    print("\n".join(["not as listed:", *wrong]) if wrong else "all as listed")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", action="store_true", help="with each number of ranks, and those left out, too")
    parser.add_argument("--debug", default="OFF", choices=("OFF", "INFO", "DETAIL"))
    parser.add_argument("--backend", default="lockstep")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    if why_not():
        sys.exit(why_not())
    if not options.every and not options.tests:
        parser.error("name tests, or give --every")
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = options.debug
    return run_every(options.backend, options.tests)


if __name__ == "__main__":
    sys.exit(main())
