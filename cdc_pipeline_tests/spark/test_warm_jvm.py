"""Who uses a warm JVM and when it ends. Most tests replace the JVM by a small program that starts at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.spark.jvm_keeper import FREE, TAKEN, JvmFolder, LockState, write_state
from cdc_pipeline.spark.warm_jvm import FOLDER_VARIABLE, WarmJvm, acquire_warm_jvm, end_warm_jvms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PATIENCE_SECONDS = 120.0
_SETTINGS = {"spark.master": "local[1]", "spark.driver.memory": "512m"}
# Writes its port and a secret as PySpark's gateway does, and ends when its standard input closes.
_IN_PLACE_OF_SPARK = f"""#!{sys.executable} -I
import os, socket, struct, sys
server = socket.create_server(("127.0.0.1", 0))
answer = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(answer + ".new", "wb") as file:
    file.write(struct.pack(">ii", server.getsockname()[1], 6) + b"secret")
os.rename(answer + ".new", answer)
sys.stdin.read()
"""
_CLIENT = """
import sys
from cdc_pipeline.spark.session import SparkLakehouse

from cdc_pipeline_tests.support.spark_settings import SHORT_LIVED

spark = SparkLakehouse(master="local[1]", warm_seconds=600, driver_memory="512m", settings=dict(SHORT_LIVED)).session
spark.range(3).write.format("delta").mode("append").save(sys.argv[1])
print(spark._jvm.java.lang.ProcessHandle.current().pid(), spark.read.format("delta").load(sys.argv[1]).count(), flush=True)
if sys.stdin.readline() == "work\\n":
    print("works", flush=True)
    spark.range(10**13).selectExpr("sum(hash(id))").collect()
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of warm JVMs. All of them end with the test."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "jvms"))
    yield tmp_path / "jvms"
    end_warm_jvms()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program that starts in place of spark-submit."""
    program = tmp_path / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(_IN_PLACE_OF_SPARK)
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return program


def _warm(seconds: float = 600, **more: str) -> WarmJvm:
    reports: list[str] = []
    found = acquire_warm_jvm({**_SETTINGS, **more}, seconds, reports.append)
    assert found is not None, reports
    return found


def _only_folder(base: Path) -> JvmFolder:
    (path,) = base.iterdir()
    return JvmFolder(path)


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.usefixtures("program")
def test_one_after_another_has_the_jvm_and_nobody_beside_them(base: Path) -> None:
    first = _warm()
    folder = _only_folder(base)
    reports: list[str] = []
    assert acquire_warm_jvm(_SETTINGS, 600, reports.append) is None
    assert reports == ["another process uses the warm JVM: this process starts its own"]
    assert folder.state().state == TAKEN
    first.release()
    assert folder.state().state == FREE
    second = _warm()
    assert second.pid == first.pid
    assert not _is_gone(second.pid)
    second.release()


@pytest.mark.usefixtures("program", "base")
def test_a_jvm_is_of_its_settings_and_of_what_it_keeps_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    first = _warm()
    other = _warm(**{"spark.driver.memory": "1g"})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    third = _warm()
    assert len({first.pid, other.pid, third.pid}) == 3
    for jvm in (first, other, third):
        jvm.release()
    end_warm_jvms()
    assert all(_is_gone(jvm.pid) for jvm in (first, other, third))


@pytest.mark.usefixtures("program")
def test_who_knows_of_it(base: Path) -> None:
    jvm = _warm()
    folder = _only_folder(base)
    assert {path.stat().st_mode & 0o777 for path in (base, folder.path)} == {0o700}
    assert {path.stat().st_mode & 0o077 for path in folder.path.iterdir()} == {0}
    with jvm.environment():
        assert os.environ["PYSPARK_GATEWAY_SECRET"] == "secret"
        socket.create_connection(("127.0.0.1", int(os.environ["PYSPARK_GATEWAY_PORT"]))).close()
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ
    jvm.release()


@pytest.mark.usefixtures("program")
def test_it_ends_when_nobody_has_had_it_for_long_enough(base: Path) -> None:
    jvm = _warm(seconds=2)
    time.sleep(2.5)  # longer than it is kept, but it is in use
    assert not _is_gone(jvm.pid)
    jvm.release()
    time.sleep(1)
    again = _warm(seconds=0.5)
    assert again.pid == jvm.pid
    again.release()
    _wait(lambda: _is_gone(jvm.pid))
    _wait(lambda: not _only_folder(base).has_keeper())
    assert _only_folder(base).connection() is None


@pytest.mark.usefixtures("program")
def test_one_whose_client_says_nothing_is_killed_and_another_one_follows(base: Path) -> None:
    jvm = _warm()
    jvm.abandon()  # has the effect of a killed process
    following = _warm()  # without a wait
    assert following.pid != jvm.pid
    assert _is_gone(jvm.pid)
    following.abandon()
    _wait(lambda: not _only_folder(base).has_keeper())
    assert _is_gone(following.pid)
    assert _only_folder(base).connection() is None
    assert {path.name for path in _only_folder(base).path.iterdir()} == {"keeper", "lock", "log"}


@pytest.mark.usefixtures("program")
def test_a_keeper_that_looks_at_the_lock_does_not_make_the_jvm_busy(base: Path) -> None:
    jvm = _warm()
    lock = jvm._lock

    def end_as_the_keeper_does() -> None:  # it has just locked what a client left behind
        write_state(lock, LockState(FREE, 600))
        os.close(lock)

    timer = threading.Timer(0.1, end_as_the_keeper_does)
    timer.start()
    assert _only_folder(base).state().state == TAKEN
    following = _warm()
    timer.join()
    following.release()


@pytest.mark.usefixtures("program")
def test_a_jvm_that_died_and_a_keeper_that_was_killed(base: Path) -> None:
    jvm = _warm()
    jvm.release()
    os.kill(jvm.pid, signal.SIGKILL)
    _wait(lambda: _only_folder(base).connection() is None)
    second = _warm()
    assert second.pid != jvm.pid
    second.release()
    os.kill(_only_folder(base).keeper_pid(), signal.SIGKILL)
    _wait(lambda: _is_gone(second.pid))
    third = _warm()
    assert third.pid not in (jvm.pid, second.pid)
    third.release()


@pytest.mark.usefixtures("program")
def test_a_folder_that_others_may_write_is_refused(base: Path) -> None:
    base.mkdir(mode=0o700)
    base.chmod(0o777)
    reports: list[str] = []
    assert acquire_warm_jvm(_SETTINGS, 600, reports.append) is None
    assert reports == [
        f"no warm JVM: {base} is not a folder that only this user may write; this process starts its own"
    ]
    base.chmod(0o700)


def test_a_jvm_that_does_not_start_is_reported(base: Path, program: Path) -> None:
    program.write_text("#!/bin/sh\necho no such jar >&2; exit 1\n")
    reports: list[str] = []
    assert acquire_warm_jvm(_SETTINGS, 600, reports.append) is None
    log = _only_folder(base).log
    assert reports == [f"the warm JVM did not start (its log: {log}): this process starts its own"]
    assert log.read_text() == "no such jar\n"


@pytest.mark.jvm
@pytest.mark.usefixtures("base")
def test_runs_of_spark(tmp_path: Path) -> None:
    """The second run reuses the JVM of the first, a run at the same time has another. The JVM ends with a client that is
    killed, and with one that is interrupted within a query and then exits normally."""
    table = str(tmp_path / "table")
    with _client(table) as first:
        try:
            pid, rows = _numbers(first)
            assert rows == 3
            with _client(str(tmp_path / "other")) as beside:
                try:
                    assert _numbers(beside)[0] != pid
                    assert _ended(beside) == _ended(first) == 0
                finally:
                    beside.kill()
        finally:
            first.kill()
    _is_left(table, pid, 6, signal.SIGKILL)
    _is_left(table, None, 9, signal.SIGINT)


def _is_left(table: str, pid: int | None, rows: int, how: signal.Signals) -> None:
    with _client(table) as client:
        try:
            found, counted = _numbers(client)
            assert counted == rows
            assert pid is None or found == pid
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write("work\n")
            client.stdin.flush()
            assert client.stdout.readline() == "works\n"
            time.sleep(2)
            assert not _is_gone(found)
            client.send_signal(how)
            assert client.wait(_PATIENCE_SECONDS) != 0
            _wait(lambda: _is_gone(found))
        finally:
            client.kill()


def _client(table: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CLIENT, table],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _numbers(client: subprocess.Popen[str]) -> tuple[int, int]:
    """The JVM's process id and the table's row count. Skips the lines with Spark's progress."""
    assert client.stdout is not None
    for line in client.stdout:
        words = line.split()
        if len(words) == 2 and all(word.isdigit() for word in words):
            return int(words[0]), int(words[1])
    raise AssertionError("the client ended")


def _ended(client: subprocess.Popen[str]) -> int:
    assert client.stdin is not None
    client.stdin.close()
    return client.wait(_PATIENCE_SECONDS)
