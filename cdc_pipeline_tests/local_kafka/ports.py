"""Free TCP ports that stay free while a broker restarts."""

from __future__ import annotations

import random
import socket

from cdc_pipeline_tests.local_kafka.settings import HOST

# Below the ephemeral ports (Linux: from 32768), which an outgoing connection may use while a broker restarts.
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000


def free_ports(count: int) -> list[int]:
    """Returns `count` different unused ports. Raises OSError if there are not enough."""
    # random, so that two concurrent processes do not get the same ports
    candidates = random.SystemRandom().sample(range(_FIRST, _LAST), _TRIES)
    ports: list[int] = []
    for port in candidates:
        if len(ports) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
    if len(ports) < count:
        raise OSError(f"no {count} free ports of {HOST} between {_FIRST} and {_LAST}")
    return ports
