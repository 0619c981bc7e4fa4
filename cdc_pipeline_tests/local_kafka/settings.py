"""The broker's settings file: one node that is broker and controller, made to start fast and to forget nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cdc_pipeline_tests.local_kafka.listeners import Listener

HOST = "127.0.0.1"
CONTROLLER = "CONTROLLER"
NODE_ID = "1"
_LARGEST_MESSAGE = str(64 << 20)
_FOREVER = str((1 << 63) - 1)

_FIXED_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": NODE_ID,
    "controller.listener.names": CONTROLLER,
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    # there is one node to keep a copy
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # the internal topics have 50 partitions otherwise, each with a folder and files to make on first use
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # takes 128 MB of the heap, for compacted topics only
    "log.cleaner.enable": "false",
    # The records of a capture keep the times at which they were taken: with the default of a week they are deleted some
    # minutes after they came, and on a machine whose clock is behind they would be refused as being of the future.
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": _FOREVER,
    "message.max.bytes": _LARGEST_MESSAGE,
    # After a SIGKILL the node is not let in again until the session of the killed one ends: 11 s with the default of 9.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "250",
    # deleted segments and topics leave the disk at once, not after a minute
    "log.segment.delete.delay.ms": "100",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


def broker_settings(
    storage: Path, listeners: Sequence[Listener], ports: Mapping[str, int], further: Mapping[str, str]
) -> dict[str, str]:
    """All settings of the broker; `ports` are by the listeners' names, `further` win. Pure."""
    addresses = [f"{listener.name}://{HOST}:{ports[listener.name]}" for listener in listeners]
    protocols = [f"{listener.name}:{listener.protocol}" for listener in listeners]
    controller = f"{HOST}:{ports[CONTROLLER]}"
    return {
        **_FIXED_SETTINGS,
        "log.dirs": str(storage),
        "listeners": ",".join([*addresses, f"{CONTROLLER}://{controller}"]),
        "advertised.listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join([*protocols, f"{CONTROLLER}:PLAINTEXT"]),
        "controller.quorum.voters": f"{NODE_ID}@{controller}",
        **further,
    }


def properties_text(settings: Mapping[str, str]) -> str:
    """The settings as a Java properties file, which is Latin-1 and takes a backslash for an escape. Pure."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    text = f"\\{text}" if text.startswith((" ", "\t")) else text
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
