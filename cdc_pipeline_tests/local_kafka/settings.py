"""Settings of the broker: one node in KRaft mode, with fast start and unlimited retention."""

from __future__ import annotations

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
    # one node has one replica
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # default: 50 partitions per internal topic, each with files to create on first use
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # needs 128 MB of heap, for compacted topics only
    "log.cleaner.enable": "false",
    # Records keep the timestamps of their capture. The default retention of a week would delete them within minutes, and
    # a machine whose clock is behind would reject them as future records.
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": _FOREVER,
    "message.max.bytes": _LARGEST_MESSAGE,
    # After a SIGKILL the node can register only after the old session ends: 11 s with the default of 9.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "250",
    # delete segments and topics at once, not after a minute
    "log.segment.delete.delay.ms": "100",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


def broker_settings(
    storage: Path, listeners: Sequence[Listener], ports: Mapping[str, int], further: Mapping[str, str]
) -> dict[str, str]:
    """All settings of the broker. `ports`: listener name → port. `further` overrides the others."""
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
    """The settings as a Java properties file: Latin-1 with backslash escapes."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    text = f"\\{text}" if text.startswith((" ", "\t")) else text
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[index : index + 2], "big") for index in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
