"""Free ports of this machine that stay free while a broker is down."""

from __future__ import annotations

import random
import socket

from cdc_pipeline_tests.local_kafka.settings import HOST

# Below the ranges that systems hand out for outgoing connections (Linux: from 32768): a port of those may be taken by
# anybody's connection in the time between a broker's end and its restart.
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000


def free_ports(count: int) -> list[int]:
    """That many different ports on which nobody listens. Raises OSError where there are none."""
    # drawn by chance, so that two processes that ask at the same time do not get the same ones
    drawn = random.SystemRandom().sample(range(_FIRST, _LAST), _TRIES)
    found: list[int] = []
    for port in drawn:
        if len(found) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise OSError(f"no {count} free ports of {HOST} between {_FIRST} and {_LAST}")
    return found
