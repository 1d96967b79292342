"""Runs tests of this folder, one after the other, each as if it were alone.

  run_tests.py [--gtest_output=xml:FILE] NAME...

A name is unittest's: decoding_test, decoding_test.Generated or decoding_test.Generated.test_jpeg. Each has a process of
its own, forked from this one, which has imported torch and torchvision: four seconds of CPU, longer than most of these
tests take. Nothing else has run here, so none finds another's threads, random numbers or settings. FILE is written as
GoogleTest writes its report, which scripts/summarize_tests reads. Exit code 1 when a case failed.
"""
import gc
import importlib
import importlib.util
import json
import os
import sys
import unittest
import xml.etree.ElementTree

from warm_python import die_with

REPORT = "--gtest_output=xml:"


class Result(unittest.TextTestResult):
    """Keeps what became of each case."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.cases = {}

    def startTest(self, test):
        super().startTest(test)
        self.cases[test.id()] = "completed"

    def outcomes(self) -> dict[str, str]:
        """Case -> "completed", "skipped" or "failed". What fails in setUpClass is a case, too."""
        skipped = {test.id(): "skipped" for test, _ in self.skipped}
        failed = {getattr(test, "test_case", test).id(): "failed" for test, _ in self.failures + self.errors}
        failed.update({test.id(): "failed" for test in self.unexpectedSuccesses})
        return self.cases | skipped | failed


def run(name: str) -> dict[str, str]:
    print(f"== {name}", file=sys.stderr, flush=True)
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    outcomes = unittest.TextTestRunner(resultclass=Result).run(suite).outcomes()
    return outcomes or {name: "failed"}  # a name that stands for no case


def run_forked(name: str) -> dict[str, str]:
    """The outcomes of the cases that `name` stands for; a process that dies is a case that failed."""
    reader, writer = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        die_with(parent)
        os.close(reader)
        outcomes = run(name)
        with open(writer, "w") as pipe:
            json.dump(outcomes, pipe)
        sys.exit()
    os.close(writer)
    with open(reader) as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    outcomes = json.loads(text) if text else {}
    if code != 0 or not outcomes:
        print(f"{name}: its process ended with {code}", file=sys.stderr)
        outcomes[name] = "failed"
    return outcomes


def write_report(file: str, outcomes: dict[str, str]):
    root = xml.etree.ElementTree.Element("testsuites")
    for case, outcome in outcomes.items():
        group, _, name = case.rpartition(".")
        element = xml.etree.ElementTree.SubElement(root, "testcase", classname=group, name=name,
                                                   result="skipped" if outcome == "skipped" else "completed")
        if outcome == "failed":
            xml.etree.ElementTree.SubElement(element, "failure")
    os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
    xml.etree.ElementTree.ElementTree(root).write(file)


def main(arguments: list[str]) -> int:
    reports = [argument.removeprefix(REPORT) for argument in arguments if argument.startswith(REPORT)]
    names = [argument for argument in arguments if not argument.startswith(REPORT)]
    if not names:
        sys.exit(__doc__)
    for file in reports:  # an earlier run's proves nothing
        if os.path.exists(file):
            os.remove(file)
    for package, module in {"torch": "torch", "torchvision": "torchvision.transforms.v2"}.items():
        if importlib.util.find_spec(package):  # without, each test fails or is skipped as it does alone
            importlib.import_module(module)
    gc.freeze()  # else a child that ends looks through all that was imported, and so copies it
    outcomes = {}
    for name in names:
        outcomes |= run_forked(name)
    for file in reports:
        write_report(file, outcomes)
    kinds = list(outcomes.values())
    print(", ".join(f"{kinds.count(kind)} {kind}" for kind in ("completed", "skipped", "failed")))
    return 1 if "failed" in kinds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
