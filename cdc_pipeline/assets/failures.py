"""Errors as Dagster events: a terminal error fails the step without retries, a transient error requests a retry."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator

import dagster as dg
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from cdc_pipeline.errors import CdcError, TransientError, redact
from cdc_pipeline.lake.delta import is_conflict
from cdc_pipeline.lake.faults import to_lake_error
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.spark.java import JavaError
from cdc_pipeline.spark.jvm import exit_code

_RETRIES, _PAUSE_SECONDS = 2, 10.0


@contextlib.contextmanager
def translate_errors(secrets: tuple[str, ...] = ()) -> Iterator[None]:
    """Converts errors of the block to `dg.Failure` or `dg.RetryRequested`.

    Failure: terminal errors, a lake that cannot be read or written, and a JVM that has ended. Retry: transient errors, a
    full disk, and commits that lost against another writer. Other exceptions are bugs and pass through unchanged.
    No exception contains one of the `secrets`: Dagster stores its text, causes and stack in the event log.
    """
    _disable_py4j_debug_log()
    with redact_secrets(secrets):
        try:
            yield
        except (CdcError, JavaError, PySparkException, Py4JError, OSError) as error:
            translated: CdcError | JavaError | None
            if isinstance(error, (CdcError, JavaError)) and exit_code() is None:
                translated = error
            else:
                translated = to_lake_error(error) or (TransientError(first_line(error)) if is_conflict(error) else None)
            if translated is None:
                raise
            if translated is not error:
                translated.__cause__ = error
            raise _dagster_event(translated, secrets) from (_redacted(translated, secrets) or translated)


def _dagster_event(translated: CdcError | JavaError, secrets: tuple[str, ...]) -> dg.RetryRequested | dg.Failure:
    if isinstance(translated, TransientError):
        return dg.RetryRequested(max_retries=_RETRIES, seconds_to_wait=_PAUSE_SECONDS)
    return dg.Failure(
        redact(str(translated), secrets), metadata=dict(getattr(translated, "place", {})), allow_retries=False
    )


@contextlib.contextmanager
def redact_secrets(secrets: tuple[str, ...]) -> Iterator[None]:
    """Replaces an exception that contains one of the `secrets` by a redacted one."""
    try:
        yield
    except Exception as error:
        if (redacted := _redacted(error, secrets)) is not None:
            raise redacted from None
        raise
    except BaseException as error:
        # An interrupt keeps its type. It may have interrupted the handling of an error that contains a secret.
        if _redacted(error, secrets) is not None:
            error.__cause__ = error.__context__ = None
        raise


def _disable_py4j_debug_log() -> None:
    """At level DEBUG, py4j logs the arguments of every call to Java, including passwords of brokers."""
    logger = logging.getLogger("py4j")
    if logger.getEffectiveLevel() < logging.INFO:
        logger.setLevel(logging.INFO)


def _redacted(error: BaseException, secrets: tuple[str, ...]) -> Exception | None:
    """A replacement for an error that contains a secret in its text, stack or causes; None if it contains none.

    Its text includes the redacted stack, because its own stack starts here.
    """
    trace = "".join(traceback.format_exception(error))
    if not any(secret in trace for secret in secrets):
        return None
    return RuntimeError(f"{type(error).__name__}: {redact(str(error), secrets)}\n{redact(trace, secrets)}")
