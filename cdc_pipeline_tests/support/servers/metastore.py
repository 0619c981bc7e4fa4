"""A Hive metastore from PySpark's jars, with its database in memory."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_pipeline.spark.java import require_java
from cdc_pipeline.spark.jvm import spark_home

_START_SECONDS = 120.0
_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    # PySpark lacks the jar of the asynchronous log
    "hive.async.log.enabled": "false",
}


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """The server; yields its address. Its log is in the folder."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    settings = {**_SETTINGS, "hive.metastore.warehouse.dir": str(folder / "warehouse")}
    rows = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    (conf / "hive-site.xml").write_text(f"<configuration>{''.join(rows)}</configuration>", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(require_java().path), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
    command += [
        "-cp",
        f"{conf}:{spark_home()}/jars/*",
        "org.apache.hadoop.hive.metastore.HiveMetaStore",
        "-p",
        str(port),
    ]
    with (
        (folder / "metastore.log").open("wb") as log,
        # Derby writes its own log into the working directory
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as server,
    ):
        try:
            _wait_for(port, server, folder / "metastore.log")
            yield f"thrift://127.0.0.1:{port}"
        finally:
            server.terminate()


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return
        except OSError:
            if time.monotonic() > until or server.poll() is not None:
                raise AssertionError(log.read_text(encoding="utf-8", errors="replace")[-3000:]) from None
            time.sleep(0.1)
