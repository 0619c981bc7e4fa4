"""`make bench-beside COMMIT=…`: benchmarks of another commit and of this checkout, in turn, and the ratio of their figures.

The other commit is checked out into a folder of its own and runs with the same environment. Seconds of a machine differ by
more between two days than most changes are worth; ratios of runs in turn do not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, report

_ROOT = Path(__file__).parents[1]
_TARGETS = {
    "warm_batch_seconds": 0.55,
    "warm_batch_cpu_seconds": 0.5,
    "tables_ratio": 0.21,
    "start_first_record_seconds": 0.65,
    "start_no_new_records_seconds": 0.75,
}
"""Figure → the greatest ratio to that of 3f5c2ef that meets the target (issue 57)."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the other commit")
    parser.add_argument("benchmarks", nargs="*", default=["warm_batch", "tables"], help="modules of benchmarks/")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each")
    add_json_option(parser)
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {"there": {}, "here": {}}
    units: dict[str, str] = {}
    with checkout_of(options.commit) as folder:
        for number in range(options.rounds):
            for name in options.benchmarks:
                for side, root in (("there", folder), ("here", _ROOT)):
                    log(f"• round {number + 1}: {name} of {options.commit if side == 'there' else 'this checkout'}")
                    for figure in figures_of_run(root, name):
                        found[side].setdefault(figure["name"], []).append(figure["value"])
                        units[figure["name"]] = figure["unit"]
    report(ratios(found["there"], found["here"], units), options.json)
    return 0


def ratios(there: Mapping[str, list[float]], here: Mapping[str, list[float]], units: Mapping[str, str]) -> list[Figure]:
    """For each figure that both have: the median of both, and the ratio of this checkout's to the other one's."""
    figures = []
    for name in (name for name in there if name in here):
        before, after = median(there[name]), median(here[name])
        figures += [Figure(f"{name}_there", before, units[name]), Figure(f"{name}_here", after, units[name])]
        if before:
            figures.append(Figure(f"{name}_beside", after / before, "ratio", _TARGETS.get(name)))
    return figures


@contextmanager
def checkout_of(commit: str) -> Iterator[Path]:
    """A checkout of the commit, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-beside-") as folder:
        path = Path(folder, "checkout")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", path, commit], cwd=_ROOT, check=True)
        try:
            yield path
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", path], cwd=_ROOT, check=True)


def figures_of_run(root: Path, name: str) -> list[dict[str, object]]:
    """The figures of one run of `benchmarks.NAME` with the code at `root`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "figures.json")
        command = [sys.executable, "-m", f"benchmarks.{name}", "--json", file]
        # the code of `root` precedes the installed package
        subprocess.run(command, cwd=root, check=True, stdout=sys.stderr)
        return json.loads(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
