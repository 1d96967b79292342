"""What training with a few seeds can tell of two sides: their rows, and whether these differ by more than seeds do."""
import itertools
import json
import math
import pathlib
import re
import statistics

LEVEL = 0.01  # of so many comparisons of two sides that are alike one fails


def parsed(text: str) -> list[int]:
    """"3" are the first three, 0 to 2; "3-5" are those. ValueError for fewer than two: their spread is the measure."""
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if not found:
        raise ValueError(f"'{text}': a number of seeds expected, as 3, or the first and last, as 3-5")
    seeds = list(range(int(found[1]), int(found[2]) + 1) if found[2] else range(int(found[1])))
    if len(seeds) < 2:
        raise ValueError(f"'{text}': two seeds or more expected")
    return seeds


class Rows:
    """Rows by recipe, side and seed, kept in a file from run to run. Those of another `place`, a dictionary of what was
    measured on what, stay there and do not count."""

    def __init__(self, file: pathlib.Path, place: dict):
        self.file, self.place = file, place
        lines = file.read_text().splitlines() if file.exists() else []
        self.rows = [row for row in map(json.loads, lines) if row["place"] == place]

    def find(self, **facts) -> list[dict]:
        return [row for row in self.rows if all(row[name] == value for name, value in facts.items())]

    def add(self, **facts) -> None:
        self.rows.append(facts | {"place": self.place})
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(self.rows[-1]) + "\n")


def beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, a and b multiples of a half: by Simpson's rule over the angle whose squared
    sine is x, where there is no pole."""
    pieces, end = 2000, math.asin(math.sqrt(x))
    values = [math.sin(end * i / pieces)**(2 * a - 1) * math.cos(end * i / pieces)**(2 * b - 1) for i in range(pieces + 1)]
    whole = values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2])
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    return 2 * scale * whole * end / pieces / 3


def chance_of_t(t: float, freedom: int) -> float:
    """That Student's t is as far from 0, on either side."""
    return beta_share(freedom / (freedom + t * t), freedom / 2, 0.5)


def chance_of_ratio(ratio: float, freedom: int) -> float:
    """That one of two variances of so many degrees of freedom each is so many times the other, whichever; ratio >= 1."""
    return 2 * beta_share(1 / (1 + ratio), freedom / 2, freedom / 2)


def limit_of_t(chance: float, freedom: int) -> float:
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of_t(middle, freedom) > chance else (low, middle)
    return high


def numbers(values) -> str:
    return ", ".join(f"{value:.4f}" for value in values)


def verdict(theirs: list[list[float]], ours: list[list[float]]) -> tuple[bool, str]:
    """Of each side a row of epochs by seed, as many on both. Passed unless, in an epoch, the means or the spreads of the
    seeds differ by more than those of two sides that are alike: Student's t, with the spread of both sides' seeds, and the
    ratio of variances. LEVEL is that of all epochs together, each with two questions."""
    epochs = list(zip(zip(*theirs), zip(*ours)))
    level = LEVEL / (2 * len(epochs))
    freedom = 2 * len(theirs) - 2
    means = [(statistics.fmean(a), statistics.fmean(b)) for a, b in epochs]
    spreads = [(statistics.stdev(a), statistics.stdev(b)) for a, b in epochs]
    errors = [math.sqrt((a * a + b * b) / len(theirs)) for a, b in spreads]
    limits = [limit_of_t(level, freedom) * error for error in errors]
    apart = [abs(a - b) for a, b in means]
    chances = [1.0 if max(both) == 0 else
               chance_of_ratio((max(both) / min(both))**2, len(theirs) - 1) if min(both) > 0 else 0.0 for both in spreads]
    means_passed = all(difference <= limit for difference, limit in zip(apart, limits))
    passed = means_passed and min(chances) >= level
    return passed, (
        f"{'Passed' if passed else 'FAILED'}, {len(theirs)} seeds a side: the means are {numbers(apart)} apart in the epochs, "
        f"of which seeds explain up to {numbers(limits)}; standard deviations are {numbers(a for a, _ in spreads)} and "
        f"{numbers(b for _, b in spreads)}, as far apart by chance in {numbers(chances)} of all cases, where {level:.4f} is "
        "the least.")


def verdict_of_pairs(theirs: list[list[float]], ours: list[list[float]]) -> tuple[bool, str]:
    """The same of sides that had the same random numbers: passed when no seed's losses are further apart than the standard
    deviation of seeds, of both sides together."""
    epochs = list(zip(zip(*theirs), zip(*ours)))
    apart = [max(abs(a - b) for a, b in zip(*epoch)) for epoch in epochs]
    noise = [math.sqrt(statistics.fmean(map(statistics.variance, epoch))) for epoch in epochs]
    passed = all(itertools.starmap(float.__le__, zip(apart, noise)))
    return passed, (f"{'Passed' if passed else 'FAILED'}, {len(theirs)} seeds: the losses of the same seed are up to "
                    f"{numbers(apart)} apart in the epochs, standard deviations of seeds are {numbers(noise)}.")
