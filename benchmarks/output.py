"""Progress lines of benchmarks, on stderr, beside the results on stdout."""

from __future__ import annotations

import sys


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
