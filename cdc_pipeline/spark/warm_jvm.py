"""Warm JVMs: a run reuses the JVM of an earlier run. Each run is a process, and a new JVM needs a minute to become fast.

One process at a time uses a warm JVM and holds its lock. On exit it stops Spark and releases the JVM. If a client ends
without releasing it, the keeper (`jvm_keeper.py`) kills the JVM, just as a run's own JVM ends with the run. A run that
gets no warm JVM starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import platform
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_pipeline.spark import jvm_keeper
from cdc_pipeline.spark.jvm_keeper import FREE, TAKEN, Connection, JvmFolder, LockState, NotPrivateError, write_state
from cdc_pipeline.spark.process_lock import process_lock
from cdc_pipeline.spark.submit_settings import settings_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FOLDER_VARIABLE = "CDC_WARM_JVM_FOLDER"
"""The environment variable with the folder of the warm JVMs. Default: a private folder below the temporary folder."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
# Prefixes of the environment variables that a JVM uses for its whole life: options of Java and Spark, the code of Python
# workers, storage credentials. Everything else is passed with each session.
_JVM_ENVIRONMENT = (
    *("SPARK", "PYSPARK", "JAVA", "JDK_", "_JAVA_OPTIONS", "HADOOP", "PYTHON", "LD_LIBRARY_PATH", "TZ", "LANG", "LC_"),
    *("AWS_", "AZURE_", "GOOGLE_", "KRB5"),
)
# PySpark sets these in its own process when a session starts.
_SESSION_ENVIRONMENT = (_PORT, _SECRET, "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
_KEEPER_SECONDS = 20.0  # maximum wait for a keeper that is ending its JVM
_BUSY_SECONDS = 0.5  # how long a JVM has to look busy: its keeper, too, has the lock for a moment
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.05


class WarmJvm:
    """A warm JVM that this process holds exclusively."""

    def __init__(self, lock: int, connection: Connection, seconds: float) -> None:
        self._lock, self._connection, self._seconds = lock, connection, seconds
        self._process = os.getpid()
        self._pending_calls: dict[object, None] = {}

    @property
    def pid(self) -> int:
        return self._connection.pid

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """Within the context, PySpark connects to this JVM instead of starting one."""
        os.environ[_PORT], os.environ[_SECRET] = str(self._connection.port), self._connection.secret
        try:
            yield
        finally:
            del os.environ[_PORT], os.environ[_SECRET]

    def connect(self) -> None:
        """Connects PySpark, which must not have a session yet. At process exit the JVM is released (`leave`)."""
        from pyspark import SparkContext

        with self.environment():
            SparkContext._ensure_initialized()
        gateway: Any = SparkContext._gateway
        self._track_calls(gateway._gateway_client)
        _clear_sessions(gateway.jvm)
        atexit.register(self.leave)

    def leave(self) -> None:
        """Stops Spark and releases the JVM. Does not release it if an operation may still run: then the keeper kills it.

        A py4j call without an answer (interrupted, or of a thread that still waits) may still be running in the JVM.
        Stopping Spark would not end it, because a Delta commit is not a job.
        """
        if os.getpid() != self._process or self._pending_calls:
            return
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        gateway: Any = SparkContext._gateway
        try:
            # without an answer in this time the JVM is not released
            gateway._gateway_client.java_parameters.read_timeout = _STOP_SECONDS
            connection = gateway._gateway_client.get_thread_connection()
            if connection is not None and connection.socket is not None:
                connection.socket.settimeout(_STOP_SECONDS)
            if (session := SparkSession._instantiatedSession) is not None:
                session.stop()
            _clear_sessions(gateway.jvm)
            gateway.jvm.org.apache.hadoop.fs.FileSystem.closeAll()  # drops cached credentials
            _release_objects(gateway)
        except Exception:
            return
        if not self._pending_calls:
            self.release()

    def release(self) -> None:
        """Makes the JVM available to the next client."""
        write_state(self._lock, LockState(FREE, self._seconds, os.getpid()))
        os.close(self._lock)

    def abandon(self) -> None:
        """Gives up the JVM without releasing it, so that its keeper kills it."""
        atexit.unregister(self.leave)
        os.close(self._lock)

    def _track_calls(self, client: Any) -> None:
        """Records the py4j calls that have no answer yet in `_pending_calls`."""
        from py4j.protocol import ERROR, MEMORY_COMMAND_NAME  # type: ignore[import-untyped]

        send = client.send_command

        def send_tracked(command: str, *args: Any, **options: Any) -> Any:
            if command.startswith(MEMORY_COMMAND_NAME):  # releases an object: cannot be left half done
                return send(command, *args, **options)
            call = object()
            self._pending_calls[call] = None
            answer = send(command, *args, **options)
            if answer != ERROR:  # the bare code is py4j's own answer for a JVM that did not respond
                del self._pending_calls[call]
            return answer

        client.send_command = send_tracked


def acquire_warm_jvm(settings: Mapping[str, str], seconds: float, report: Callable[[str], None]) -> WarmJvm | None:
    """Acquires the warm JVM of these settings, and starts it if there is none.

    `seconds`: how long the JVM is kept after its release. Returns None if no warm JVM is available; `report` receives the
    reason.
    """
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return None  # on Windows
    lock = None
    try:
        folder = JvmFolder(_base_folder() / f"jvm-{_digest(settings)}")
        lock = _acquire(folder, seconds)
        if lock is None:
            report("another process uses the warm JVM: this process starts its own")
            return None
        connection = folder.connection() or _start(folder, settings)
        if connection is None:
            report(f"the warm JVM did not start (its log: {folder.log}): this process starts its own")
            os.close(lock)
            return None
    except (NotPrivateError, OSError) as error:
        report(f"no warm JVM: {error}; this process starts its own")
        if lock is not None:
            os.close(lock)
        return None
    return WarmJvm(lock, connection, seconds)


def end_warm_jvms(base: Path | None = None) -> None:
    """Ends all warm JVMs, including those in use, and waits up to 20 seconds for each.

    `base`: the folder of the warm JVMs; by default that of this process's environment.
    """
    for path in (base or _base_folder()).glob("jvm-*"):
        folder = JvmFolder(path)
        until = time.monotonic() + _KEEPER_SECONDS
        while folder.has_keeper() and time.monotonic() < until:
            if pid := folder.keeper_pid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(_POLL_SECONDS)


def _base_folder() -> Path:
    configured = os.environ.get(FOLDER_VARIABLE)
    return Path(configured) if configured else Path(tempfile.gettempdir(), f"cdc_pipeline-{os.getuid()}")


def _digest(settings: Mapping[str, str]) -> str:
    """Identifies what a running JVM cannot change: environment, folder, Python, PySpark, and all settings.

    All settings, because only Spark knows which of them it can change later.
    """
    import pyspark

    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_JVM_ENVIRONMENT) and name not in _SESSION_ENVIRONMENT
    }
    parts = [
        dict(settings),
        environment,
        str(Path.cwd()),
        sys.executable,
        platform.python_version(),
        pyspark.__version__,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _acquire(folder: JvmFolder, seconds: float) -> int | None:
    """Locks the JVM, marks it as TAKEN and returns the lock's descriptor; None if another process holds it."""
    free_at = time.monotonic()  # the last time that it did not look busy
    until = free_at + _KEEPER_SECONDS
    while time.monotonic() < until:
        lock = folder.lock()
        if lock is None:
            if folder.state().state != TAKEN:
                free_at = time.monotonic()
            elif time.monotonic() - free_at >= _BUSY_SECONDS:
                return None
        # the client vanished or the JVM is ending: its keeper needs the lock to end it
        elif folder.has_keeper() and (folder.state().state == TAKEN or not _is_reachable(folder.connection())):
            os.close(lock)
            free_at = time.monotonic()
        else:
            if not folder.has_keeper():
                folder.set_connection(None)
            write_state(lock, LockState(TAKEN, seconds, os.getpid()))
            return lock
        time.sleep(_POLL_SECONDS)
    return None


def _is_reachable(connection: Connection | None) -> bool:
    if connection is None:
        return False
    try:
        socket.create_connection(("127.0.0.1", connection.port), timeout=5).close()
    except OSError:
        return False
    return True


def _start(folder: JvmFolder, settings: Mapping[str, str]) -> Connection | None:
    """Starts a JVM and its keeper, which outlives this process. Returns None if the JVM did not start."""
    from pyspark import find_spark_home

    home: Callable[[], str] = find_spark_home._find_spark_home
    # two processes that fill an empty Ivy cache at the same time corrupt each other's files
    with (
        process_lock("jars"),
        settings_options(settings, folder.path, os.environ.get("PYSPARK_SUBMIT_ARGS", "")) as options,
        open(folder.log, "wb", opener=_open_private) as log,
    ):
        command = [str(Path(home(), "bin", "spark-submit")), *options]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        keeper = subprocess.Popen(
            [sys.executable, "-I", jvm_keeper.__file__, str(folder.path)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        assert keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError), keeper.stdin:
            keeper.stdin.write(json.dumps(command).encode())
        while keeper.poll() is None and folder.connection() is None:
            time.sleep(_POLL_SECONDS)
    # prevents Popen's warning about a child that still runs: nobody waits for the keeper
    keeper.returncode = keeper.returncode or 0
    return folder.connection()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _clear_sessions(java: Any) -> None:
    """Stops what another session left in the JVM, and clears Spark's and Delta's caches."""
    sessions = java.org.apache.spark.sql.classic.SparkSession
    context = getattr(getattr(java, "org.apache.spark.SparkContext$"), "MODULE$").getActive()
    if context.isDefined():
        context.get().cancelAllJobs()
        context.get().stop()
    sessions.clearActiveSession()
    sessions.clearDefaultSession()
    java.org.apache.spark.sql.delta.DeltaLog.clearCache()


def _release_objects(gateway: Any) -> None:
    """Releases all Java objects of this process, which py4j's gateway would otherwise keep, with the session in them."""
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]

    bindings = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getGateway().getBindings()
    names = [name for name in bindings.keySet().toString().strip("[]").split(", ") if not _is_object(name)]
    retained = gateway.jvm.java.util.ArrayList()
    for name in names:
        retained.add(name)
    bindings.keySet().retainAll(retained)


def _is_object(name: str) -> bool:
    return name.startswith("o") and name[1:].isdigit()
