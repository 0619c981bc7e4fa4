"""The sensor `<pipeline>_new_tables`: has the webserver load the definitions again when mirrors appeared, ended or changed.

Mirrors are nodes of the asset graph, and the graph is loaded once, from the catalog (`lake/catalog.py`). The daemon loads it
anew every minute by itself; a webserver does so only when it is asked to. Nothing but the picture depends on it: what a run
materializes is in Dagster's history at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import dagster as dg
from dagster import DefaultSensorStatus
from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError, ReloadRepositoryLocationStatus

from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.catalog import known_mirrors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.lake.catalog import CatalogEntry
    from cdc_pipeline.pipeline import Pipeline

WEBSERVER = "CDC_WEBSERVER"
"""The environment's variable for where Dagster's webserver is: host:port, or a URL."""
_SECONDS = 50
"""A sensor has 60 s in all (DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS)."""
_INTERVAL_SECONDS = 30


@dataclass(frozen=True)
class Webserver:
    """Where Dagster's webserver is. Raises ValueError, when made `of` a text, for one that names no host."""

    host: str
    port: int | None
    https: bool = False
    prefix: str = ""

    @classmethod
    def of(cls, text: str) -> Webserver:
        expected = f"{WEBSERVER}={text!r} is no webserver: host:port or a URL is expected, such as 127.0.0.1:3000"
        full = text if "://" in text else f"http://{text}"
        try:
            found = urlsplit(full)
            host, port = found.hostname, found.port
        except ValueError as error:
            raise ValueError(expected) from error
        if not host or re.search(r"\s", text) or found.scheme not in ("http", "https"):
            raise ValueError(expected)
        return cls(f"[{host}]" if ":" in host else host, port, found.scheme == "https", found.path.rstrip("/"))

    def load_again(self, location: str) -> None:
        """Has it load the code location again. Raises TransientError where it does not answer, or could not load it."""
        where = f"the webserver at {self.host}:{self.port}" if self.port else f"the webserver at {self.host}"
        try:
            client = DagsterGraphQLClient(
                self.host, self.port, use_https=self.https, timeout=_SECONDS, path_prefix=self.prefix
            )
            found = client.reload_repository_location(location)
        except DagsterGraphQLClientError as error:
            cause = error.__cause__ or error
            raise TransientError(f"{where} ({WEBSERVER}) does not answer: {cause}") from error
        if found.status != ReloadRepositoryLocationStatus.SUCCESS:
            raise TransientError(f"{where} could not load {location} again: {found.failure_type}: {found.message}")


def new_tables_sensor(pipeline: Pipeline) -> dg.SensorDefinition:
    """The sensor of one pipeline. It runs from the start where the environment names the webserver."""

    @dg.sensor(
        name=f"{pipeline.name}_new_tables",
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING if os.environ.get(WEBSERVER) else DefaultSensorStatus.STOPPED,
        description="Has the webserver load the definitions again when mirrors appeared, were renamed or dropped, or have "
        f"other columns. It asks the one that {WEBSERVER} names (host:port).",
    )
    def new_tables(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        entries = known_mirrors(pipeline.paths)
        digest = catalog_digest(entries)
        if not entries:
            return dg.SkipReason("no mirror is known yet")
        if context.cursor == digest:
            return dg.SkipReason("the mirrors are as they were")
        place = os.environ.get(WEBSERVER, "")
        if not place:
            return dg.SkipReason(
                f"the mirrors have changed, and {WEBSERVER} does not say where the webserver is: reload the code "
                "location by hand (Deployment, Reload), or set it to host:port"
            )
        origin = context.code_location_origin
        assert origin is not None
        Webserver.of(place).load_again(origin.location_name)
        # The cursor, and not a look at the graph that is loaded here: the daemon, which evaluates this, has read the
        # catalog by itself meanwhile, the webserver has not.
        return dg.SensorResult(
            skip_reason=f"{len(entries)} mirrors, and {origin.location_name} is loaded again", cursor=digest
        )

    return new_tables


def catalog_digest(entries: Iterable[CatalogEntry]) -> str:
    """What the nodes of these mirrors show, as one short text."""
    return hashlib.sha256(json.dumps([asdict(entry) for entry in entries]).encode()).hexdigest()[:16]
