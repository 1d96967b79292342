"""What the measured programs are made of, and whether it is what a commit has.

  python3 benchmarks/support/measured_code.py   prints the label of a report, "COMMIT (code HASH)", or says what differs from
                                       the commit (exit code 2)

The hash is of the files alone, so it outlives rebases and is the same in a clone without history.
"""
import hashlib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# All that is compiled in or run while measuring; tests/parity/models.py are the models of the Python peers.
MEASURED = ("lockstep", "apps", "benchmarks", "cmake", "CMakeLists.txt", "CMakePresets.json", "CMakeUserPresets.json",
            "scripts/bench", "scripts/bootstrap", "scripts/python-torch", "tests/parity/models.py",
            ":!benchmarks/reports", ":!*.md")


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


def code_hash(root: pathlib.Path) -> str:
    """Of the names and contents of all measured files as they lie there."""
    names = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *MEASURED).split("\0")
    whole = hashlib.sha256()
    for name in sorted({name for name in names if name}):
        file = root / name
        if file.is_file():
            whole.update(f"{name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def label(root: pathlib.Path) -> str:
    """SystemExit when the code is not that of the commit."""
    try:
        changed = differing(root)
        if not changed:
            return f"{git(root, 'rev-parse', '--short', 'HEAD').strip()} (code {code_hash(root)})"
    except NoGit as error:
        print(f"bench: a report names the commit it measured, and git does not tell it: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    shown = "".join(f"\n  {name}" for name in changed[:10]) + ("\n  ..." if len(changed) > 10 else "")
    print(f"bench: {len(changed)} measured files are not those of the commit: commit them or put them away, for a report "
          f"names the commit it measured{shown}", file=sys.stderr)
    raise SystemExit(2)


def hash_in(text: str) -> str | None:
    """Of a label; None when it has none, as those of older reports."""
    found = re.search(r"\(code ([0-9a-f]+)\)$", text)
    return found[1] if found else None


if __name__ == "__main__":
    print(label(ROOT))
