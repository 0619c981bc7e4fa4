"""The sensor `<pipeline>_new_tables`: reloads the webserver's definitions when the catalog of mirrors changes.

Dagster builds the asset graph from the catalog (`lake/catalog.py`) when it loads the definitions. The daemon reloads them
every minute, a webserver only on request. Only the asset graph in the UI depends on this sensor.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from urllib.parse import SplitResult, urlsplit

import dagster as dg
from dagster import DefaultSensorStatus

from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.catalog import CatalogEntry, read_catalog
from cdc_pipeline.pipeline import Pipeline

WEBSERVER = "CDC_WEBSERVER"
"""Environment variable with the address of Dagster's webserver: host:port or a URL."""
_SECONDS = 50
"""Timeout of the reload. Dagster limits a sensor to 60 s (DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS)."""
_INTERVAL_SECONDS = 30


class NoAnswerError(TransientError):
    """The webserver does not answer: it may be starting."""


def webserver_url(address: str) -> SplitResult:
    """The URL of a value of `WEBSERVER`. Raises ValueError for a text that is neither host:port nor a URL."""
    with contextlib.suppress(ValueError):  # a port that is no number
        url = urlsplit(address if "://" in address else f"http://{address}")
        has_host = url.hostname and (url.port is None or url.port)
        if has_host and url.scheme in ("http", "https") and not re.search(r"\s", address):
            return url
    raise ValueError(
        f"{WEBSERVER}={address!r} is not an address: host:port or a URL is expected, such as 127.0.0.1:3000"
    )


def reload_location(webserver: SplitResult, location: str) -> None:
    """Reloads the code location. Raises NoAnswerError, or TransientError if the webserver fails to load it."""
    # takes a third of a second to import, at each start of a run
    from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError, ReloadRepositoryLocationStatus

    host, prefix = webserver.netloc.rpartition("@")[2], webserver.path.rstrip("/")
    try:
        client = DagsterGraphQLClient(host, use_https=webserver.scheme == "https", timeout=_SECONDS, path_prefix=prefix)
        result = client.reload_repository_location(location)
    except DagsterGraphQLClientError as error:
        cause = error.__cause__ or error
        raise NoAnswerError(f"the webserver at {host} ({WEBSERVER}) does not answer: {cause}") from error
    if result.status != ReloadRepositoryLocationStatus.SUCCESS:
        raise TransientError(
            f"the webserver at {host} could not reload {location}: {result.failure_type}: {result.message}"
        )


def new_tables_sensor(pipeline: Pipeline) -> dg.SensorDefinition:
    """The sensor of a pipeline. It is on by default if the environment names the webserver."""

    @dg.sensor(
        name=f"{pipeline.name}_new_tables",
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING if os.environ.get(WEBSERVER) else DefaultSensorStatus.STOPPED,
        description="Reloads the webserver's definitions when mirrors are created, renamed or dropped, or their columns "
        f"change. {WEBSERVER} is the address of the webserver (host:port).",
    )
    def new_tables(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        entries = read_catalog(pipeline.paths)
        digest = catalog_digest(entries)
        if not entries:
            return dg.SkipReason("there are no mirrors yet")
        if context.cursor == digest:
            return dg.SkipReason("no mirror has changed")
        address = os.environ.get(WEBSERVER, "")
        if not address:
            return dg.SkipReason(
                f"mirrors have changed, but {WEBSERVER} is not set. Set it to the webserver's host:port, or reload the code "
                "location by hand (Deployment, Reload)"
            )
        origin = context.code_location_origin
        assert origin is not None
        try:
            reload_location(webserver_url(address), origin.location_name)
        except NoAnswerError as error:
            return dg.SkipReason(f"mirrors have changed, but {error}. The next tick tries again")
        # A cursor is needed: the daemon, which evaluates this, reloads its own definitions before the webserver does.
        return dg.SensorResult(
            skip_reason=f"reloaded {origin.location_name} with {len(entries)} mirrors", cursor=digest
        )

    return new_tables


def catalog_digest(entries: Iterable[CatalogEntry]) -> str:
    """Short hash of everything that the asset nodes of these mirrors show."""
    shown = [asdict(replace(entry, version=0)) for entry in entries]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]
