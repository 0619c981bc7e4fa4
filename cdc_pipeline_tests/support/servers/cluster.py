"""A standalone Spark cluster on this machine from PySpark's jars: a process for the master and one per worker."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from types import TracebackType

import pyspark
from typing_extensions import Self

from cdc_pipeline.spark.java import require_java
from cdc_pipeline_tests.local_kafka.ports import free_ports
from cdc_pipeline_tests.local_kafka.process import BrokerProcess
from cdc_pipeline_tests.local_kafka.settings import HOST
from cdc_pipeline_tests.support.spark_settings import JVM_OPTIONS

_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 60.0


class StandaloneCluster:
    """`with StandaloneCluster(folder, 2) as cluster:` starts two workers with one core each, at `cluster.master`.

    Logs and the work folders of executors are below `folder`. `hidden`: an existing folder that master and workers see as
    empty, as if they were on other machines. All processes end with the context, and also if the process that started them
    is killed.
    """

    def __init__(self, folder: Path, workers: int, worker_memory: str = "1g", *, hidden: Path | None = None) -> None:
        self._folder, self._workers, self._memory, self._hidden = folder, workers, worker_memory, hidden
        self._processes: list[BrokerProcess] = []

    def __enter__(self) -> Self:
        port, *ports = free_ports(2 * self._workers + 2)
        self.master = f"spark://{HOST}:{port}"
        self._folder.mkdir(parents=True)
        try:
            self._start("master", "Master", "--port", str(port), "--webui-port", str(ports.pop()))
            for number in range(self._workers):
                options = ("--port", str(ports.pop()), "--webui-port", str(ports.pop()), "-c", "1", "-m", self._memory)
                work = ("--work-dir", str(self._folder / "work" / str(number)))
                self._start(f"worker-{number}", "Worker", *options, *work, self.master)
            self._wait_for_workers()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def jars_of_executors(self) -> list[set[str]]:
        """Per executor, in the order of their folders: the names of the jars that the driver sent to it."""
        found = {folder.parent for folder in (self._folder / "work").glob("*/app-*/*/stdout")}
        return [{jar.name for jar in folder.glob("*.jar")} for folder in sorted(found)]

    def _start(self, name: str, role: str, *options: str) -> None:
        environment = [
            f"SPARK_HOME={_HOME}",
            "SPARK_SCALA_VERSION=2.13",  # set by Spark's scripts; a worker needs it to find the jars of executors
            f"SPARK_LOCAL_IP={HOST}",
            f"SPARK_LOCAL_DIRS={self._folder / 'local'}",
            # ignores the configuration of a Spark that is installed on the machine
            f"SPARK_CONF_DIR={self._folder}",
        ]
        java = [str(require_java().path), *JVM_OPTIONS.split(), "-Xmx192m", "-cp", f"{_HOME}/jars/*"]
        command = [*java, f"org.apache.spark.deploy.{role.lower()}.{role}", "--host", HOST, *options]
        command = ["env", *environment, *command]
        if self._hidden is not None:
            hide = 'mount -t tmpfs none "$0" && exec "$@"'
            command = ["unshare", "--map-root-user", "--mount", "sh", "-c", hide, str(self._hidden), *command]
        self._processes.append(BrokerProcess(command, self._folder / f"{name}.log"))

    def _wait_for_workers(self) -> None:
        until = time.monotonic() + _START_SECONDS
        log = self._folder / "master.log"
        while len(re.findall("Registering worker", log.read_text(errors="replace"))) < self._workers:
            for process in self._processes:
                assert process.status is None, process.error_line()
            assert time.monotonic() < until, log.read_text(errors="replace")
            time.sleep(0.1)

    def _stop(self) -> None:
        """Stops the workers before the master. Killing a worker also kills its executors."""
        for process in reversed(self._processes):
            process.kill()


def environment_of_driver() -> dict[str, str]:
    """The environment of a driver that uses the cluster."""
    return {**os.environ, "SPARK_LOCAL_IP": HOST}
