"""`make bench-quick`: start, warm batch, and 300,000 events end to end. About ten minutes on two cores.

Runs the benchmarks one after another, each in its own process. Their output goes to stderr. The figures of all of them
follow on stdout. A benchmark that fails has no figures: the others run, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, read_figures, report

_ROOT = Path(__file__).parents[1]
BENCHMARKS = (
    ("benchmarks.start", "--rounds", "1"),
    ("benchmarks.warm_batch",),
    ("benchmarks.end_to_end", "--events", "300000", "--batch", "100000", "--warm-up", "2", "--partitions", "1"),
)
"""Module and options of each benchmark."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    options = parser.parse_args()
    figures, failed = run_all(BENCHMARKS)
    report(figures, options.json)
    for module in failed:
        log(f"{module} failed")
    return 1 if failed else 0


def run_all(benchmarks: Sequence[Sequence[str]]) -> tuple[list[Figure], list[str]]:
    """The figures of the benchmarks, and the modules of those that failed."""
    figures: list[Figure] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-quick-") as folder:
        for number, (module, *options) in enumerate(benchmarks):
            file = Path(folder, f"{number}.json")
            log(f"• {module} {' '.join(options)}".rstrip())
            command = [sys.executable, "-m", module, *options, "--json", str(file)]
            if subprocess.run(command, cwd=_ROOT, stdout=sys.stderr, check=False).returncode == 0:
                figures += read_figures(file)
            else:
                failed.append(module)
    return figures, failed


if __name__ == "__main__":
    sys.exit(main())
