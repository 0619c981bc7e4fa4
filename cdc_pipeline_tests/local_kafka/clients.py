"""librdkafka clients without log output. Errors are raised as exceptions."""

from __future__ import annotations

import logging

from confluent_kafka.admin import AdminClient

SILENT = logging.getLogger("cdc_pipeline_tests.local_kafka.silent")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def quiet_admin(bootstrap: str) -> AdminClient:
    """An admin client for the plaintext listener with short reconnect pauses.

    Keep a reference until its futures are done: they never complete if the client is garbage-collected.
    """
    return AdminClient(
        {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}, logger=SILENT
    )
