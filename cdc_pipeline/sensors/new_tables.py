"""The sensor `<pipeline>_new_tables`: reloads the webserver's definitions when the catalog of mirrors changes.

Dagster builds the asset graph from the catalog (`lake/catalog.py`) when it loads the definitions. The daemon reloads them
every minute, a webserver only on request. Only the asset graph in the UI depends on this sensor.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from urllib.parse import urlsplit

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


@dataclass(frozen=True)
class Webserver:
    """Address of Dagster's webserver."""

    host: str
    port: int | None
    https: bool = False
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> Webserver:
        """Raises ValueError for a text that is neither host:port nor a URL."""
        expected = f"{WEBSERVER}={text!r} is not an address: host:port or a URL is expected, such as 127.0.0.1:3000"
        full = text if "://" in text else f"http://{text}"
        try:
            url = urlsplit(full)
            host, port = url.hostname, url.port
        except ValueError as error:
            raise ValueError(expected) from error
        if not host or re.search(r"\s", text) or url.scheme not in ("http", "https"):
            raise ValueError(expected)
        return cls(f"[{host}]" if ":" in host else host, port, url.scheme == "https", url.path.rstrip("/"))

    def reload(self, location: str) -> None:
        """Reloads the code location. Raises NoAnswerError, or TransientError if the webserver fails to load it."""
        # takes a third of a second to import, at each start of a run
        from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError, ReloadRepositoryLocationStatus

        where = f"the webserver at {self.host}:{self.port}" if self.port else f"the webserver at {self.host}"
        try:
            client = DagsterGraphQLClient(
                self.host, self.port, use_https=self.https, timeout=_SECONDS, path_prefix=self.prefix
            )
            result = client.reload_repository_location(location)
        except DagsterGraphQLClientError as error:
            cause = error.__cause__ or error
            raise NoAnswerError(f"{where} ({WEBSERVER}) does not answer: {cause}") from error
        if result.status != ReloadRepositoryLocationStatus.SUCCESS:
            raise TransientError(f"{where} could not reload {location}: {result.failure_type}: {result.message}")


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
            Webserver.parse(address).reload(origin.location_name)
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
