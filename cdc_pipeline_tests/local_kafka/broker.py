"""`LocalBroker`: a Kafka broker in KRaft mode on this machine; one node is broker and controller.

`with LocalBroker(folder) as broker:` starts and stops it. Clients connect to `broker.bootstrap`.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package is typed, but has no __all__
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.java import require_java
from cdc_pipeline_tests.local_kafka.clients import quiet_admin
from cdc_pipeline_tests.local_kafka.jars import broker_class_path
from cdc_pipeline_tests.local_kafka.listeners import PLAINTEXT, listener_settings
from cdc_pipeline_tests.local_kafka.ports import free_ports
from cdc_pipeline_tests.local_kafka.process import BrokerProcess
from cdc_pipeline_tests.local_kafka.settings import CONTROLLER, HOST, broker_settings, properties_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from confluent_kafka.admin import AdminClient
    from typing_extensions import Self

    from cdc_pipeline_tests.local_kafka.certificates import Certificates
    from cdc_pipeline_tests.local_kafka.listeners import Listener
    from cdc_pipeline_tests.local_kafka.token_server import TokenServer

START_SECONDS = 60.0
STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_FORMAT_SECONDS = 60.0
# fixed for all brokers: nothing compares the ids of two brokers
_CLUSTER_ID = "cdc-pipeline-local-kaf"
_SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_SCRAM_ITERATIONS = 4096  # minimum of Kafka

_JVM_OPTIONS = (
    # a short-lived broker does not profit from the optimizing compiler and a parallel garbage collector
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    # 300 lines with all settings
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.Config=warn",
)


class LocalBroker:
    """A broker whose records, topics, users and log are in `folder`; a later broker of the folder continues with them.

    It listens on 127.0.0.1, on free ports that it keeps over restarts: on a plaintext listener, and on `listeners`.
    `users` (name → password) are for PLAIN and SCRAM, `certificates` for listeners with TLS, `tokens` for OAUTHBEARER.
    `settings` override broker settings. Raises ValueError for a listener without its users, certificates or tokens.
    """

    def __init__(
        self,
        folder: Path,
        listeners: Sequence[Listener] = (),
        *,
        users: Mapping[str, str] | None = None,
        certificates: Certificates | None = None,
        tokens: TokenServer | None = None,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
    ) -> None:
        self._folder = folder.resolve()
        self._listeners = (PLAINTEXT, *listeners)
        self._users = dict(users or {})
        self._heap = heap
        names = [*(listener.name for listener in self._listeners), CONTROLLER]
        if len({name.lower() for name in names}) < len(names):
            raise ValueError(f"two listeners have the same name: {names}")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        further: dict[str, str] = {}
        for listener in self._listeners:
            further |= listener_settings(listener, certificates, self._users, tokens)
        self._settings = broker_settings(
            self._folder / "storage", self._listeners, self._ports, {**further, **(settings or {})}
        )
        # Kafka connects only to OAuth addresses in this list
        self._allowed = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.keys_url}",) if tokens else ()
        self._process: BrokerProcess | None = None
        self._has_users = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """`host:port` of the plaintext listener."""
        return self.addresses[PLAINTEXT.name]

    @property
    def addresses(self) -> dict[str, str]:
        """Listener name → `host:port`."""
        return {listener.name: f"{HOST}:{self._ports[listener.name]}" for listener in self._listeners}

    @property
    def log(self) -> Path:
        """The log file of all starts of the broker."""
        return self._folder / "broker.log"

    @property
    def pid(self) -> int | None:
        """The process id; None while the broker does not run."""
        return self._process.pid if self._process is not None and self._process.status is None else None

    def start(self) -> None:
        """Starts the broker and waits until it answers clients. Does nothing if it runs.

        Raises TransientError with the error line of its log if it exits, or does not answer in 60 s.
        """
        if self.pid is not None:
            return
        class_path = broker_class_path()
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = self._folder / "server.properties"
        properties.write_text(properties_text(self._settings))
        java = [str(require_java().path), f"-Xmx{self._heap}", *_JVM_OPTIONS, *self._allowed, "-cp", class_path]
        if not (self._folder / "storage" / "meta.properties").is_file():
            self._format([*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)])
        self._process = BrokerProcess([*java, "kafka.Kafka", str(properties)], self.log)
        try:
            admin = self._wait_until_ready(self._process, time.monotonic() + START_SECONDS)
            self._create_users(admin)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stops the broker gracefully, and kills it after 20 s."""
        if self._process is not None:
            self._process.stop(STOP_SECONDS)
            self._process = None

    def kill(self) -> None:
        """Kills the broker, like a loss of its machine."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        """Stops and starts the broker, on the same ports with the same records."""
        self.stop()
        self.start()

    def _format(self, command: list[str]) -> None:
        """Formats the storage folder for a new cluster."""
        with self.log.open("ab") as log:
            start = log.tell()
            try:
                status = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=_FORMAT_SECONDS, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                raise TransientError(f"Kafka's storage tool did not finish in {_FORMAT_SECONDS:g} s") from None
        if status != 0:
            lines = self.log.read_bytes()[start:].decode(errors="replace").strip().splitlines()
            line = next((line for line in lines if "Exception" in line or "rror" in line), (lines or ["no output"])[-1])
            raise TransientError(f"Kafka's storage cannot be formatted: {line} (whole log: {self.log})")

    def _wait_until_ready(self, process: BrokerProcess, until: float) -> AdminClient:
        """Returns a client once the broker answers it: its ports are open long before it serves requests."""
        admin = quiet_admin(self.bootstrap)
        while time.monotonic() < until:
            if process.status is not None:
                raise TransientError(
                    f"Kafka exited with status {process.status}: {process.error_line()} (whole log: {self.log})"
                )
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=1.0).brokers:
                    return admin
            time.sleep(_POLL_SECONDS)
        raise TransientError(
            f"Kafka did not answer in {START_SECONDS:g} s: {process.error_line()} (whole log: {self.log})"
        )

    def _create_users(self, admin: AdminClient) -> None:
        """Creates the SCRAM users on the first start. PLAIN users are broker settings.

        The storage tool could create them, too, but does not support every character in a password.
        """
        if self._has_users or not self._users:
            return
        mechanisms = {mechanism for listener in self._listeners for mechanism in listener.mechanisms}
        try:
            # one request per mechanism: Kafka accepts a user only once per request
            for mechanism in sorted(mechanisms & _SCRAM.keys()):
                users: list[UserScramCredentialAlteration] = [
                    UserScramCredentialUpsertion(
                        name, ScramCredentialInfo(_SCRAM[mechanism], _SCRAM_ITERATIONS), password.encode()
                    )
                    for name, password in self._users.items()
                ]
                for answer in admin.alter_user_scram_credentials(users).values():
                    answer.result(START_SECONDS)
        except KafkaException as error:
            raise TransientError(f"Kafka rejected its users: {error}") from error
        self._has_users = True
