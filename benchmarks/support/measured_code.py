"""What the measured programs are made of, and whether it is what a commit has.

  python3 benchmarks/support/measured_code.py        says what differs from the commit (exit code 2), or nothing
  python3 benchmarks/support/measured_code.py NAME   prints the label of the report NAME, too: "COMMIT (code HASH)"

The hash is of the files alone, so it outlives rebases and is the same in a clone without history. It is of those that the
report's programs are built from, and of what they are measured with: a report outlives changes of other modules.
"""
import hashlib
import itertools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What each report measures. `lockstep run` and the trainer's `lockstep` only start what is measured, but for `launch` and
# `nodes`.
PROGRAMS = {
    "step": ("lockstep-bench-step",), "nets": ("lockstep-bench-step",), "job": ("lockstep-trainer", "lockstep-bench-step"),
    "reduce-update": ("lockstep-bench-reduce-update",), "rules": ("lockstep-bench-rules",),
    "replicas": ("lockstep-bench-replicas",), "overhead": ("lockstep-bench-overhead",),
    "checkpoint": ("lockstep-bench-checkpoint",), "comm": ("lockstep-bench-comm-rank",), "constants": ("lockstep-bench-comm",),
    "launch": ("lockstep", "lockstep-trainer", "lockstep-bench-worker"), "feed": ("lockstep-bench-feed",),
    "nodes": ("lockstep", "lockstep-trainer", "lockstep-bench-membership"), "link": ("lockstep", "lockstep-bench-step"),
    "python": ("lockstep_torch",), "gpu": ("lockstep-bench-gpu-step",),
    "input": ("lockstep-bench-input",), "mnist-parity": ("lockstep-trainer",),
    "recipe-parity": ("lockstep-trainer",), "fused-accuracy": ("lockstep-trainer",), "node-faults": ("lockstep",)}
# How all of them are compiled, and what they and their peers run in.
SHARED = ("CMakeLists.txt", "CMakePresets.json", "CMakeUserPresets.json", "cmake/lockstep_module.cmake",
          "cmake/lockstep_toolchain.cmake", "lockstep/CMakeLists.txt", "scripts/bootstrap", "scripts/python-torch",
          "benchmarks/peer/", "benchmarks/support/", "tests/parity/models.py")
# Below those folders, and only about the page.
UNSHARED = ("benchmarks/support/measured_code.py", "benchmarks/support/plots.py")
# What measures, where it is not in the folder of the report in benchmarks/.
SCRIPTS = {"link": ("benchmarks/nodes/two_nodes.py",),
           "comm": ("benchmarks/nodes/two_nodes.py", "benchmarks/link/wire.py", "benchmarks/link/plain.py"),
           "mnist-parity": ("tests/parity/mnist_ten_epochs.py", "tests/parity/reference.py", "tests/parity/lockstep.py",
                            "tests/parity/files.py"),
           "recipe-parity": tuple(f"tests/parity/{name}.py" for name in (
               "recipes_by_hand", "same_draws", "seeds", "pictures", "lockstep", "reference", "files")),
           "fused-accuracy": ("tests/parity/fused_accuracy.py",)}
# All that is compiled in or run while measuring any of them; tests/parity/models.py are the models of the Python peers.
MEASURED = ("lockstep", "apps", "benchmarks", "python", "recipes", "cmake", "CMakeLists.txt", "CMakePresets.json",
            "CMakeUserPresets.json", "scripts/bench", "scripts/bootstrap", "scripts/python-torch", "tests/parity/models.py",
            *itertools.chain(*SCRIPTS.values()), ":!benchmarks/reports", ":!*.md")
LISTS = ("lockstep/*/CMakeLists.txt", "apps/CMakeLists.txt", "benchmarks/CMakeLists.txt", "python/CMakeLists.txt")
TARGET = re.compile(r"^ *(?:lockstep_module|lockstep_program|add_library|target_link_libraries)\(([\w-]+)([^()]*)\)", re.M)


class NoGit(Exception):
    """git does not answer: no repository, or not one that this user may read."""


def git(root: pathlib.Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise NoGit(str(error)) from None
    if done.returncode != 0:
        raise NoGit(done.stderr.strip())
    return done.stdout


def differing(root: pathlib.Path) -> list[str]:
    """What is compiled in and not as in the commit: changed, staged, deleted, or not known to git."""
    status = git(root, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--", *MEASURED)
    return sorted(entry[3:] for entry in status.split("\0") if entry)


def built_from(root: pathlib.Path) -> dict[str, tuple[set[str], set[str]]]:
    """Of each target in the CMake lists, a module's by its own name: the folders of its sources, the targets it links."""
    targets: dict[str, tuple[set[str], set[str]]] = {}
    for file in (file for pattern in LISTS for file in sorted(root.glob(pattern))):
        here = file.parent.relative_to(root)
        for name, words in TARGET.findall(file.read_text()):
            folders, links = targets.setdefault(name, (set(), set()))
            folders |= {f"{(here / word).parent}/" for word in re.findall(r"[\w./-]+\.c(?:pp)?\b", words)}
            links |= set(re.findall(r"lockstep::(\w+)|\b(lockstep_bench_\w+)", words))
    return {name: (folders, {module or library for module, library in links} - {name})
            for name, (folders, links) in targets.items()}


def closure(root: pathlib.Path, programs: tuple[str, ...]) -> set[str]:
    """The programs and all that is linked into them. KeyError for a program that no list has."""
    targets, found, next_ones = built_from(root), set(), set(programs)
    while next_ones:
        found |= next_ones
        next_ones = set().union(*(targets[name][1] for name in next_ones)) - found
    return found


def measured_by(root: pathlib.Path, report: str) -> tuple[str, ...]:
    """Files, and folders with a / behind, that decide what the report finds."""
    targets = built_from(root)
    folders = set().union(*(targets[name][0] for name in closure(root, PROGRAMS[report])))
    # Recipes are read by the list of CMake in this folder.
    read = ("recipes/",) if "lockstep/train/" in folders else ()
    return (*SHARED, f"benchmarks/{report}/", *SCRIPTS.get(report, ()), *read, *sorted(folders))


def content(file: pathlib.Path) -> bytes:
    """CMake's lists without their tests, which are no part of a program."""
    if file.name != "CMakeLists.txt":
        return file.read_bytes()
    return re.sub(r"^if\(LOCKSTEP_TESTS\)\n.*?^endif\(\)\n", "", file.read_text(), flags=re.M | re.S).encode()


def code_hash(root: pathlib.Path, report: str) -> str:
    """Of the names and contents of all files that the report measures, as they lie there."""
    names = set(git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *MEASURED).split("\0"))
    measured = measured_by(root, report)
    whole = hashlib.sha256()
    for name in sorted(names - {""} - set(UNSHARED)):
        file = root / name
        if name.startswith(measured) and file.is_file():
            text = content(file)
            whole.update(f"{name}\0{len(text)}\0".encode() + text)
    return whole.hexdigest()[:16]


def commit(root: pathlib.Path) -> str:
    """SystemExit when the code is not that of the commit: all of it, for it is built together."""
    try:
        changed = differing(root)
        if not changed:
            return git(root, "rev-parse", "--short", "HEAD").strip()
    except NoGit as error:
        print(f"bench: a report names the commit it measured, and git does not tell it: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    shown = "".join(f"\n  {name}" for name in changed[:10]) + ("\n  ..." if len(changed) > 10 else "")
    print(f"bench: {len(changed)} measured files are not those of the commit: commit them or put them away, for a report "
          f"names the commit it measured{shown}", file=sys.stderr)
    raise SystemExit(2)


def hash_in(text: str) -> str | None:
    """Of a label, or of the first one in a report; None when there is none."""
    found = re.search(r"\(code ([0-9a-f]+)\)", text)
    return found[1] if found else None


if __name__ == "__main__":
    here = commit(ROOT)
    for report in sys.argv[1:]:
        if report not in PROGRAMS:
            raise SystemExit(f"bench: there is no report '{report}' ({', '.join(PROGRAMS)})")
        print(f"{here} (code {code_hash(ROOT, report)})")
