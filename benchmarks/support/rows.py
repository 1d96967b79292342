"""Which row of a report counts: the rule of README, pages and plots, in one place.

Every row says what it is:
  ours       Lockstep
  installed  what a user of PyTorch has without doing anything for it
  tuned      what somebody sets up who knows it well, whatever it is called
  floor      no contender: what the work costs without it
  lever      ours with something changed
and rows of training their `precision`, fp32 or bf16. A value is what a row costs: less is better.
"""
import statistics

KINDS = ("ours", "installed", "tuned", "floor", "lever")
PEERS = ("installed", "tuned")


def of(rows: list[dict], *kinds: str, **facts) -> list[dict]:
    """The rows of these kinds in which all facts are so. ValueError for a row that does not say what it is: it must not
    drop out of a comparison unnoticed."""
    for row in rows:
        if row.get("kind") not in KINDS:
            raise ValueError(f"row '{row.get('name')}' is of kind {row.get('kind')}, not one of {', '.join(KINDS)}")
    return [row for row in rows if row["kind"] in kinds and all(row[name] == value for name, value in facts.items())]


def best(rows: list[dict], value, *kinds: str, **facts) -> dict | None:
    """The row of these kinds with the smallest value; None when there is none."""
    return min(of(rows, *kinds, **facts), key=value, default=None)


def best_peer(rows: list[dict], value, precision: str | None = None) -> dict | None:
    """The fastest row that is not ours, by whatever name. float32 is compared with float32; who accepts bf16 takes the
    fastest of all."""
    return best(rows, value, *PEERS, **({"precision": "fp32"} if precision == "fp32" else {}))


def is_steady(values: list[float]) -> bool:
    """Whether it would come out alike in another run: the quartiles are within a factor of two."""
    if len(values) < 4:
        return True
    lower, _, upper = statistics.quantiles(values, n=4)
    return upper <= 2 * lower


def precisions(rows: list[dict]) -> list[str]:
    """Those that we have rows of, float32 first."""
    return [precision for precision in ("fp32", "bf16") if of(rows, "ours", precision=precision)]
