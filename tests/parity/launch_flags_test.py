"""torchrun's flags one by one: the same toy worker under torchrun and under lockstep run, compared variable by
variable. docs/guide/launching.md holds the table; a flag that is new in torchrun, a difference that is not written
there and one that is gone all fail here.
"""
import argparse
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

import launchers

GUIDE = launchers.HERE.parents[1] / "docs/guide/launching.md"
TOY = launchers.HERE / "launch_toy.py"
CORES = len(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True)
class Case:
    """One start. "{port}" in arguments is a free port, "{logs}" a folder, both the same for the two sides."""
    flag: str
    arguments: tuple = ()
    environment: dict = dataclasses.field(default_factory=dict)
    program: tuple = (str(TOY), "one", "--two=2")
    differs: frozenset = frozenset()  # what may, and must, differ beyond ALWAYS
    module: str = "run"
    send: int = 0  # a signal for the launcher when all workers are there
    cold: bool = False  # torchrun is a process of its own from the first: a few such are a check of the others

    def names_port(self) -> bool:
        """With c10d the port is where agents meet, and the workers get another."""
        return any("{port}" in text for text in self.arguments) and "c10d" not in self.arguments

    def name(self) -> str:
        return " ".join([self.module, *self.arguments, *(f"{k}={v}" for k, v in self.environment.items())])


def case(flag: str, *arguments: str, differs=(), **more) -> Case:
    return Case(flag, arguments, differs=frozenset(differs), **more)


TWO = ("--nproc-per-node", "2")
FAILS = {"TOY_FAIL": "0 1 7"}
CLUSTER = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}  # as Kubeflow sets

CASES = [
    case("--help", "-h", differs=["stdout"]),
    case("--nnodes", "--nnodes", "1", *TWO),
    case("--nnodes", "--nnodes=1:1"),
    case("--nproc-per-node", *TWO, cold=True),
    case("--nproc-per-node", *TWO, environment=FAILS, differs=["exit code"]),
    case("--nproc-per-node", *TWO, environment=CLUSTER),
    case("--nproc-per-node", "--nproc_per_node=cpu"),
    case("--nproc-per-node", "--nproc-per-node", "auto"),
    case("--nproc-per-node", "--nproc-per-node", "many", differs=["exit code"], cold=True),
    case("--rdzv-backend", "--rdzv-backend", "c10d", *TWO),
    case("--rdzv-backend", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:{port}"),
    case("--rdzv-endpoint", "--rdzv-endpoint", "localhost:{port}"),
    case("--rdzv-id", "--rdzv-id", "job7"),
    case("--rdzv-conf", "--rdzv-conf", "timeout=30,last_call_timeout=5"),
    case("--standalone", "--standalone", *TWO),
    case("--standalone", "--standalone", "--rdzv-id", "mine", "--master-addr", "127.0.0.1"),
    case("--max-restarts", "--max-restarts", "2", *TWO, environment=FAILS, cold=True),
    case("--monitor-interval", "--monitor-interval", "0.01", *TWO),
    case("--start-method", "--start-method", "fork", *TWO),
    case("--event-log-handler", "--event-log-handler", "null"),
    case("--role", "--role", "trainer", *TWO),
    case("--module", "-m", *TWO, program=("launch_toy", "one", "-m")),
    case("--no-python", "--no-python", *TWO),
    case("--no-python", *TWO, program=("/bin/true",), differs=["exit code"]),  # a program goes to torchrun's Python
    case("--run-path", "--run-path", *TWO, differs=["files", "leads its group", "session"]),
    case("--log-dir", "--log-dir", "{logs}", *TWO),
    case("--redirects", "--log-dir", "{logs}", "-r", "3", *TWO),
    case("--redirects", "--log-dir", "{logs}", "--redirects", "0:1,1:2", *TWO),
    case("--tee", "--log-dir", "{logs}", "-t", "3", *TWO),
    case("--tee", "--log-dir", "{logs}", "--tee", "1:3", "--redirects", "0:3", *TWO, environment=FAILS,
         differs=["exit code"]),
    case("--local-ranks-filter", "--log-dir", "{logs}", "--tee", "3", "--local-ranks-filter", "1", *TWO),
    case("--local-ranks-filter", "--local-ranks-filter", "0", *TWO),
    case("--duplicate-stdout-filters", "--log-dir", "{logs}", "-t", "3", "--duplicate-stdout-filters", "1 out", *TWO),
    case("--duplicate-stdout-filters", "--log-dir", "{logs}", "-r", "3", "--duplicate-stdout-filters", "1 out", *TWO,
         differs=["logs"]),
    case("--duplicate-stderr-filters", "--log-dir", "{logs}", "-t", "3", "--duplicate-stderr-filters", "0 e,1 e", *TWO),
    case("--duplicate-stderr-filters", "--log-dir", "{logs}", "-r", "3", "--duplicate-stderr-filters", "0 e", *TWO,
         differs=["logs"]),
    case("--node-rank", "--node-rank", "0"),
    case("--master-addr", "--master-addr", "localhost", *TWO),
    case("--master-port", "--master-port", "{port}", *TWO),
    case("--local-addr", "--local-addr", "localhost", "--standalone", *TWO),
    case("--local-addr", "--local-addr", "localhost"),
    case("--logs-specs", "--logs-specs", "special", differs=["exit code"]),
    case("--numa-binding", "--numa-binding", "node", differs=["exit code"]),
    case("--signals-to-handle", "--signals-to-handle", "SIGUSR1,SIGTERM", *TWO, environment={"TOY_WAIT": "1"},
         send=signal.SIGUSR1, differs=["exit code"]),
    case("--signals-to-handle", *TWO, environment={"TOY_WAIT": "1"}, send=signal.SIGTERM, differs=["exit code"],
         cold=True),
    case("--virtual-local-rank", "--virtual-local-rank", *TWO, environment={"CUDA_VISIBLE_DEVICES": "5,3"}),
    case("--virtual-local-rank", "--virtual-local-rank", *TWO),
    case("--use-env", *TWO, module="launch", cold=True),
    case("--use-env", "--use-env", *TWO, module="launch"),
    case("--use-env", "--no-python", module="launch", differs=["exit code"]),
]

# Only ours is run: torchrun would wait for a machine that never comes, or load a plug-in.
REFUSED = [
    ("--master-addr", ["--master-addr", "192.0.2.1"], "is not this machine"),
    ("--rdzv-endpoint", ["--rdzv-endpoint", "192.0.2.1:29400"], "is not this machine"),
    ("--rdzv-backend", ["--rdzv-backend", "etcd-v2"], "is not one of static, c10d"),
    ("--event-log-handler", ["--event-log-handler", "console"], "is not one of null"),
]

# Differences that every start has, and how each value is checked. The guide gives the reasons.
ALWAYS = {
    "MASTER_PORT": lambda job, theirs, ours: 1 <= int(ours) <= 65535 and not job.case.names_port(),
    "TORCHELASTIC_USE_AGENT_STORE": lambda job, theirs, ours: ours == "False",
    "TORCHELASTIC_RUN_ID": lambda job, theirs, ours: theirs == "none" or "--standalone" in job.case.arguments,
    "OMP_NUM_THREADS": lambda job, theirs, ours: ours == str(max(1, CORES // len(job.ours.workers))),
    "TORCHELASTIC_ERROR_FILE": lambda job, theirs, ours: theirs and ours,
    "LOCKSTEP_SEGMENT": lambda job, theirs, ours: theirs is None and ours,
    "LOCKSTEP_AGENT_STORE": lambda job, theirs, ours: theirs is None and ours,
}
# Its own variables, those of shells, and of a Python that is found through one.
THIS_TEST = re.compile(r"(TOY_FOLDER|PET_MASTER_PORT|_|PWD|OLDPWD|SHLVL|PYENV_.*)\Z")


@dataclasses.dataclass
class Outcome:
    ended: launchers.Ended
    workers: dict
    logs: dict


@dataclasses.dataclass
class Job:
    case: Case
    theirs: Outcome
    ours: Outcome


def start(case: Case, side: str, port: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        dumps, logs = pathlib.Path(folder, "dumps"), pathlib.Path(folder, "logs")
        dumps.mkdir()
        environment = launchers.clean_environment(**case.environment, TOY_FOLDER=str(dumps),
                                                  PYTHONPATH=f"{launchers.HERE}:{os.environ.get('PYTHONPATH', '')}")
        if side == "torchrun":  # two starts at a time cannot both have port 29500
            environment["PET_MASTER_PORT"] = str(port)
        arguments = [text.format(port=port, logs=logs) for text in case.arguments]
        with launchers.Launched([*launchers.COMMANDS[side][case.module], *arguments, *case.program],
                                environment, folder, warm=side == "torchrun" and not case.cold) as job:
            if case.send:
                launchers.wait_until(lambda: len(list(dumps.glob("*.json"))) == 2, f"two workers: {case.name()}")
                os.kill(job.process.pid, case.send)
            ended = job.end()
        return Outcome(ended, launchers.read_workers(dumps), read_logs(logs))


def read_logs(folder: pathlib.Path) -> dict:
    """Relative path -> sorted lines (ranks write in any order); the random part of the job's folder is cut off."""
    return {re.sub(r"^[^/]+_\w{6,8}/", "RUN/", str(file.relative_to(folder))): sorted(file.read_text().splitlines(True))
            for file in sorted(folder.rglob("*")) if file.is_file()}


def toy_lines(text: str) -> list[str]:
    """What workers printed. Launchers talk on stderr in their own words."""
    return sorted(line for line in text.splitlines() if re.search(r"\btoy \d", line))


def worker_differences(job: Job, key: str) -> dict:
    """By name of a variable, or of another thing that the toy wrote down."""
    theirs, ours = ({**dump["variables"], **dump, "variables": None} for dump in
                    (job.theirs.workers[key], job.ours.workers[key]))
    found = {}
    for name in sorted(name for name in theirs.keys() | ours.keys() if not THIS_TEST.match(name)):
        pair = theirs.get(name), ours.get(name)
        if pair[0] != pair[1] and not (name in ALWAYS and ALWAYS[name](job, *pair)):
            found[name] = pair
    return found


def differences(job: Job) -> dict:
    theirs, ours = job.theirs, job.ours
    pairs = {"exit code": (theirs.ended.code, ours.ended.code),
             "stdout": (sorted(theirs.ended.out.splitlines()), sorted(ours.ended.out.splitlines())),
             "stderr": (toy_lines(theirs.ended.err), toy_lines(ours.ended.err)),
             "workers": (sorted(theirs.workers), sorted(ours.workers)),
             "logs": (theirs.logs, ours.logs)}
    found = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if "workers" not in found:
        for key in theirs.workers:
            found.update(worker_differences(job, key))
    return found


def torchrun_flags() -> list[argparse.Action]:
    from torch.distributed.run import get_args_parser
    return [action for action in get_args_parser()._actions if action.option_strings]


def flag_name(action: argparse.Action) -> str:
    return max(action.option_strings, key=len).replace("_", "-")


def table() -> dict[str, list[str]]:
    """Flag -> cells of its row."""
    section = GUIDE.read_text().split("## torchrun's flags, one by one")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines()
            if line.startswith("| `-")]
    return {re.findall(r"`(--[a-z-]+)", row[0])[-1]: row for row in rows}


def setUpModule():
    launchers.require_torch()
    unittest.addModuleCleanup(launchers.warm_torchrun().end)


class Flags(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        def both(case: Case) -> Job:
            port = launchers.free_port()
            return Job(case, start(case, "torchrun", port), start(case, "lockstep", port))

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            cls.jobs = list(pool.map(both, CASES))

    def test_each_differs_as_documented_only(self):
        for job in self.jobs:
            with self.subTest(job.case.name()):
                found = differences(job)
                self.assertEqual(set(found), job.case.differs, f"{found}\n{job.theirs.ended}\n{job.ours.ended}")

    def test_exit_codes(self):
        for job in self.jobs:
            if "exit code" not in job.case.differs:
                continue
            with self.subTest(job.case.name()):
                expected = (128 + job.case.send if job.case.send else 7 if job.case.environment
                            else 0 if job.case.program == ("/bin/true",) else 2)
                self.assertEqual((job.theirs.ended.code, job.ours.ended.code), (1, expected))

    def test_refused_with_a_reason(self):
        for _, arguments, reason in REFUSED:
            with self.subTest(arguments):
                done = lockstep(*arguments, "true")
                self.assertEqual(done.returncode, 2)
                self.assertIn(reason, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_table_has_every_flag_and_says_what_was_seen(self):
        rows = table()
        known = {flag_name(action) for action in torchrun_flags()} | {"--use-env"}
        self.assertEqual(set(rows), known)
        self.assertEqual({case.flag for case in CASES}, known, "each flag needs a case")
        for flag, cells in rows.items():
            jobs = [job for job in self.jobs if job.case.flag == flag]
            seen = {name for job in jobs for name in differences(job)} - {"exit code"}
            refused = flag in {name for name, *_ in REFUSED} or not any(job.ours.workers for job in jobs)
            with self.subTest(flag):
                self.assertEqual(cells[3] == "yes", not seen and not refused, f"{cells} {seen}")

    def test_guide_names_every_difference(self):
        text = GUIDE.read_text().split("## Documented differences")[1]
        for name in ALWAYS:
            self.assertIn(f"`{name}", text)


def lockstep(*arguments, **environment) -> subprocess.CompletedProcess:
    return subprocess.run([*launchers.COMMANDS["lockstep"]["run"], *arguments], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=launchers.DEADLINE_SECONDS,
                          env=launchers.clean_environment(**environment))


VALUES = {
    "--nnodes": "1", "--nproc-per-node": "3", "--rdzv-backend": "c10d", "--rdzv-endpoint": "localhost:4321",
    "--rdzv-id": "job7", "--rdzv-conf": "timeout=3", "--max-restarts": "4", "--monitor-interval": "0.5",
    "--start-method": "fork", "--event-log-handler": "null", "--role": "trainer", "--log-dir": "logs",
    "--redirects": "0:2", "--tee": "3", "--local-ranks-filter": "0", "--duplicate-stdout-filters": "a,b",
    "--duplicate-stderr-filters": "c", "--node-rank": "0", "--master-addr": "localhost", "--master-port": "4321",
    "--local-addr": "localhost", "--signals-to-handle": "SIGUSR1",
}
WITHOUT_VARIABLE = {"--help", "--logs-specs", "--numa-binding"}  # torchrun reads these from the command line only


class Spellings(unittest.TestCase):
    """Dash, underscore, "=", short form, PET_ variable: all mean the same, on both sides."""

    def parse(self, arguments, environment=()) -> dict:
        from torch.distributed.run import get_args_parser
        variables = dict(environment)
        os.environ.update(variables)  # read when the parser is made
        try:
            return vars(get_args_parser().parse_args([*arguments, "true"]))
        finally:
            for name in variables:
                del os.environ[name]

    def plan(self, arguments, **environment) -> str:
        done = lockstep("--dry-run", *arguments, "true", **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def test_each_spelling(self):
        for action in torchrun_flags():
            flag = flag_name(action)
            if flag in WITHOUT_VARIABLE:
                continue
            value = VALUES.get(flag)
            plain = [flag] if value is None else [flag, value]
            variable = {"PET_" + flag[2:].replace("-", "_").upper(): value or "1"}
            with self.subTest(flag):
                theirs, ours = self.parse(plain), self.plan(plain)
                self.assertEqual(self.parse([], variable), theirs)
                self.assertEqual(self.without(self.plan([], **variable), variable), ours)
                for spelling in self.spellings(action, value):
                    self.assertEqual(self.parse(spelling), theirs, spelling)
                    self.assertEqual(self.plan(spelling), ours, spelling)

    def without(self, plan: str, variables: dict) -> str:
        return "".join(line for line in plan.splitlines(True) if line.strip().split("=")[0] not in variables)

    def spellings(self, action: argparse.Action, value: str | None):
        for name in action.option_strings:
            if value is None:
                yield [name]
            else:
                yield [name, value]
                yield [f"{name}={value}" if name.startswith("--") else name + value]

    def test_the_command_line_wins(self):
        variables = {"PET_ROLE": "variable", "PET_MAX_RESTARTS": "5"}
        self.assertEqual(self.parse(["--role", "typed"], variables)["role"], "typed")
        plan = self.plan(["--role", "typed"], **variables)
        self.assertIn("ROLE_NAME=typed\n", plan)
        self.assertIn("TORCHELASTIC_MAX_RESTARTS=5\n", plan)

    def test_abbreviations_are_torchruns_alone(self):
        self.assertEqual(self.parse(["--nnode", "1"])["nnodes"], "1")
        self.assertIn("did you mean '--nnodes'?", lockstep("--nnode", "1", "true").stderr)

    def test_what_follows_the_program_is_its_own(self):
        arguments = ["--role", "a", "true", "--role", "b", "-m", "--", "x"]
        from torch.distributed.run import get_args_parser
        theirs = get_args_parser().parse_args(arguments)
        self.assertEqual((theirs.role, theirs.training_script_args), ("a", ["--role", "b", "-m", "--", "x"]))
        self.assertIn("rank 0: true --role b -m -- x\n", lockstep("--dry-run", *arguments).stdout)


if __name__ == "__main__":
    unittest.main()
