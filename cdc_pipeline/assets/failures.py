"""Errors as Dagster should treat them: a terminal one fails at once with its one line, a transient one is tried again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import dagster as dg

from cdc_pipeline.errors import CdcError, TerminalError
from cdc_pipeline.resources.java import JavaError

if TYPE_CHECKING:
    from collections.abc import Iterator

# For what may pass: a broker or a disk that did not answer. Terminal errors are raised without retries.
RETRIES = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)


@contextlib.contextmanager
def clear_failures() -> Iterator[None]:
    """Turns the package's errors into Dagster failures that show the message and, if terminal, are not retried."""
    try:
        yield
    except (CdcError, JavaError) as error:
        terminal = isinstance(error, (TerminalError, JavaError))
        place = getattr(error, "place", {})
        raise dg.Failure(description=str(error), metadata=dict(place), allow_retries=not terminal) from error
