"""librdkafka clients that do not write each lost connection to standard error: what matters comes as an exception."""

from __future__ import annotations

import logging

from confluent_kafka.admin import AdminClient

SILENT = logging.getLogger("cdc_pipeline_tests.local_kafka.silent")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def quiet_admin(bootstrap: str) -> AdminClient:
    """An admin client for the listener without security, which tries again at once where it finds nobody.

    Keep it in a variable until its answers are there: one that is collected meanwhile never gives them.
    """
    return AdminClient(
        {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}, logger=SILENT
    )
