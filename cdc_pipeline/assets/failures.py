"""Errors as Dagster should treat them: a terminal one fails at once with its one line, a transient one is tried again."""

from __future__ import annotations

import contextlib
import logging
import traceback
from typing import TYPE_CHECKING

import dagster as dg
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from cdc_pipeline.errors import CdcError, TransientError, without
from cdc_pipeline.lake.delta import is_conflict
from cdc_pipeline.lake.faults import lake_fault
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.spark.java import JavaError

if TYPE_CHECKING:
    from collections.abc import Iterator

_RETRIES, _PAUSE_SECONDS = 2, 10.0


@contextlib.contextmanager
def clear_failures(secrets: tuple[str, ...] = ()) -> Iterator[None]:
    """Terminal errors become Dagster failures with their message, and so does a lake that cannot be written or read;
    transient ones, a full disk, and commits that lost against those of another writer ask for another try of the step.

    Any other exception goes through as it is: a fault of ours is not cured by a repetition. Except that none of the
    `secrets` goes with it: Dagster keeps an exception with its text, its causes and its stack in its event log.
    """
    _keep_commands_to_java_out_of_logs()
    try:
        yield
    except (CdcError, JavaError) as error:
        raise _as_dagster_takes_it(error, secrets) from (_cleaned(error, secrets) or error)
    except (PySparkException, Py4JJavaError, OSError) as error:
        meant = lake_fault(error) or (TransientError(first_line(error)) if is_conflict(error) else None)
        if meant is None:
            _require_clean(error, secrets)
            raise
        meant.__cause__ = error
        raise _as_dagster_takes_it(meant, secrets) from (_cleaned(meant, secrets) or meant)
    except Exception as error:
        _require_clean(error, secrets)
        raise
    except BaseException as error:
        # an interrupt, which must stay one; it may have come while an error that tells a secret was handled
        if _cleaned(error, secrets) is not None:
            error.__cause__ = error.__context__ = None
        raise


def _as_dagster_takes_it(meant: CdcError | JavaError, secrets: tuple[str, ...]) -> dg.RetryRequested | dg.Failure:
    if isinstance(meant, TransientError):
        return dg.RetryRequested(max_retries=_RETRIES, seconds_to_wait=_PAUSE_SECONDS)
    return dg.Failure(without(str(meant), secrets), metadata=dict(getattr(meant, "place", {})), allow_retries=False)


@contextlib.contextmanager
def without_secrets(secrets: tuple[str, ...]) -> Iterator[None]:
    """An error that tells a secret becomes another one, which does not."""
    try:
        yield
    except Exception as error:
        _require_clean(error, secrets)
        raise


def _keep_commands_to_java_out_of_logs() -> None:
    """At level DEBUG py4j logs every call to Java with its arguments, a broker's passwords among them."""
    logger = logging.getLogger("py4j")
    if logger.getEffectiveLevel() < logging.INFO:
        logger.setLevel(logging.INFO)


def _require_clean(error: Exception, secrets: tuple[str, ...]) -> None:
    if (cleaned := _cleaned(error, secrets)) is not None:
        raise cleaned from None


def _cleaned(error: BaseException, secrets: tuple[str, ...]) -> Exception | None:
    """Another error in the place of one that tells a secret, by itself or by a cause; None where it tells none. Its text has
    the whole stack without the secrets, because its own would begin here."""
    told = "".join(traceback.format_exception(error))
    if not any(secret in told for secret in secrets):
        return None
    return RuntimeError(f"{type(error).__name__}: {without(str(error), secrets)}\n{without(told, secrets)}")
