"""Errors as Dagster should treat them: a terminal one fails at once with its one line, a transient one is tried again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import dagster as dg
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from cdc_pipeline.errors import CdcError, TransientError
from cdc_pipeline.resources.delta import is_conflict
from cdc_pipeline.resources.java import JavaError

if TYPE_CHECKING:
    from collections.abc import Iterator

_RETRIES, _PAUSE_SECONDS = 2, 10.0


@contextlib.contextmanager
def clear_failures() -> Iterator[None]:
    """Terminal errors become Dagster failures with their message; transient ones, and commits that lost
    against those of another writer, ask for another try of the step.

    Any other exception goes through as it is: a fault of ours is not cured by a repetition.
    """
    try:
        yield
    except (TransientError, PySparkException, Py4JJavaError) as error:
        if not isinstance(error, TransientError) and not is_conflict(error):
            raise
        raise dg.RetryRequested(max_retries=_RETRIES, seconds_to_wait=_PAUSE_SECONDS) from error
    except (CdcError, JavaError) as error:
        raise dg.Failure(
            description=str(error), metadata=dict(getattr(error, "place", {})), allow_retries=False
        ) from error
