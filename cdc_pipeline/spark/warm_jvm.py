"""A JVM that stays warm between runs: each run is a process of its own, and a new JVM takes a minute until it is fast.

One process at a time has such a JVM. It says so by a lock, and when it ends it says that nothing is left to do there; a
JVM whose client ended without that word is killed by the keeper (`jvm_keeper.py`), as a run's own JVM ends with the run.
Where there is no warm JVM to be had a run starts one of its own, as without all this.
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
from cdc_pipeline.spark.jvm_keeper import FREE, TAKEN, Connection, JvmFolder, Mark, NotPrivateError, set_mark
from cdc_pipeline.spark.process_lock import turn
from cdc_pipeline.spark.submit_settings import settings_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FOLDER = "CDC_WARM_JVM_FOLDER"
"""The environment variable that says where warm JVMs are known: by default in a folder of the user's own under /tmp."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
# What a JVM keeps of the environment in which it was started: how Java and Spark start, the code of Python workers, and
# credentials of storage. Of anything else it is told with each session.
_KEPT_ENVIRONMENT = (
    *("SPARK", "PYSPARK", "JAVA", "JDK_", "_JAVA_OPTIONS", "HADOOP", "PYTHON", "LD_LIBRARY_PATH", "TZ", "LANG", "LC_"),
    *("AWS_", "AZURE_", "GOOGLE_", "KRB5"),
)
# PySpark sets these in its own process, when a session starts
_OF_A_SESSION = (_PORT, _SECRET, "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
_PATIENCE_SECONDS = 20.0  # for a keeper that is about to end its JVM
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.05


class WarmJvm:
    """A JVM that this process has for itself until it ends."""

    def __init__(self, lock: int, connection: Connection, seconds: float) -> None:
        self._lock, self._connection, self._seconds = lock, connection, seconds
        self._process = os.getpid()
        self._unanswered: dict[object, None] = {}

    @property
    def pid(self) -> int:
        return self._connection.pid

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """PySpark connects to this JVM instead of starting one."""
        os.environ[_PORT], os.environ[_SECRET] = str(self._connection.port), self._connection.secret
        try:
            yield
        finally:
            del os.environ[_PORT], os.environ[_SECRET]

    def join(self) -> None:
        """Connects PySpark, before it has a session. From here on the JVM is left in order when the process ends."""
        from pyspark import SparkContext

        with self.environment():
            SparkContext._ensure_initialized()
        gateway: Any = SparkContext._gateway
        self._count_answers(gateway._gateway_client)
        _forget_sessions(gateway.jvm)
        atexit.register(self.leave)

    def leave(self) -> None:
        """Stops Spark and says that nothing is left to do; or says nothing, where that is not certain.

        A call without an answer (the run was interrupted within it, or a thread still waits) may still be at work in the
        JVM, which Spark's own `stop` would not end: a commit of Delta's is no job.
        """
        if os.getpid() != self._process or self._unanswered:
            return
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        gateway: Any = SparkContext._gateway
        try:
            # a JVM that does not stop is one to be killed
            gateway._gateway_client.java_parameters.read_timeout = _STOP_SECONDS
            connection = gateway._gateway_client.get_thread_connection()
            if connection is not None and connection.socket is not None:
                connection.socket.settimeout(_STOP_SECONDS)
            if (session := SparkSession._instantiatedSession) is not None:
                session.stop()
            _forget_sessions(gateway.jvm)
            gateway.jvm.org.apache.hadoop.fs.FileSystem.closeAll()  # their credentials too
            _forget_objects(gateway)
        except Exception:
            return
        if not self._unanswered:
            self.release()

    def release(self) -> None:
        """Leaves the JVM to the next client."""
        set_mark(self._lock, Mark(FREE, self._seconds, os.getpid()))
        os.close(self._lock)

    def abandon(self) -> None:
        """Leaves the JVM to its keeper, which kills it."""
        atexit.unregister(self.leave)
        os.close(self._lock)

    def _count_answers(self, client: Any) -> None:
        from py4j.protocol import ERROR, MEMORY_COMMAND_NAME  # type: ignore[import-untyped]

        send = client.send_command

        def counted(command: str, *args: Any, **options: Any) -> Any:
            if command.startswith(MEMORY_COMMAND_NAME):  # Python has an object no longer: nothing to leave half done
                return send(command, *args, **options)
            call = object()
            self._unanswered[call] = None
            answer = send(command, *args, **options)
            if answer != ERROR:  # alone it is py4j's own word, for a JVM that did not answer
                del self._unanswered[call]
            return answer

        client.send_command = counted


def warm_jvm(settings: Mapping[str, str], seconds: float, report: Callable[[str], None]) -> WarmJvm | None:
    """The warm JVM of these settings, taken for this process; started where there is none. It is kept for so many seconds
    after this process. None where it cannot be had, of which the reason is reported."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return None  # on Windows
    lock = None
    try:
        folder = JvmFolder(_base() / f"jvm-{_digest(settings)}")
        lock = _taken(folder, seconds)
        if lock is None:
            report("the warm JVM is taken: this process starts its own")
            return None
        connection = folder.connection() or _started(folder, settings)
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
    """Ends all warm JVMs that are known in the folder, also one that is in use, and waits until they are gone."""
    for path in (base or _base()).glob("jvm-*"):
        folder = JvmFolder(path)
        until = time.monotonic() + _PATIENCE_SECONDS
        while folder.is_kept() and time.monotonic() < until:
            if pid := folder.keeper():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(_POLL_SECONDS)


def _base() -> Path:
    named = os.environ.get(FOLDER)
    return Path(named) if named else Path(tempfile.gettempdir(), f"cdc_pipeline-{os.getuid()}")


def _digest(settings: Mapping[str, str]) -> str:
    """Of all that a JVM cannot change once it runs, and of all settings: which of them are such is Spark's to know."""
    import pyspark

    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_KEPT_ENVIRONMENT) and name not in _OF_A_SESSION
    }
    parts = [dict(settings), kept, str(Path.cwd()), sys.executable, platform.python_version(), pyspark.__version__]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _taken(folder: JvmFolder, seconds: float) -> int | None:
    """The descriptor of the JVM's lock, with a mark that we have it; None where another process has it."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        lock = folder.lock()
        if lock is None:
            if folder.mark().state == TAKEN:
                return None
        # one whose client vanished, or that ends: its keeper needs the lock for that
        elif folder.is_kept() and (folder.mark().state == TAKEN or not _answers(folder.connection())):
            os.close(lock)
        else:
            if not folder.is_kept():
                folder.set_connection(None)
            set_mark(lock, Mark(TAKEN, seconds, os.getpid()))
            return lock
        time.sleep(_POLL_SECONDS)
    return None


def _answers(connection: Connection | None) -> bool:
    if connection is None:
        return False
    try:
        socket.create_connection(("127.0.0.1", connection.port), timeout=5).close()
    except OSError:
        return False
    return True


def _started(folder: JvmFolder, settings: Mapping[str, str]) -> Connection | None:
    """A new JVM, with a keeper that outlives this process."""
    from pyspark import find_spark_home

    home: Callable[[], str] = find_spark_home._find_spark_home
    # two that fetch jars into one empty cache at the same time break each other's files
    with (
        turn("jars"),
        settings_options(settings, folder.path, os.environ.get("PYSPARK_SUBMIT_ARGS", "")) as options,
        open(folder.log, "wb", opener=_private) as log,
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
    # it is nobody's to wait for: where it ends before this process, it waits for that one
    keeper.returncode = keeper.returncode or 0
    return folder.connection()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _forget_sessions(java: Any) -> None:
    """Whatever of another session the JVM still has. In order there is none, but what Spark and Delta know of tables."""
    sessions = java.org.apache.spark.sql.classic.SparkSession
    context = getattr(getattr(java, "org.apache.spark.SparkContext$"), "MODULE$").getActive()
    if context.isDefined():
        context.get().cancelAllJobs()
        context.get().stop()
    sessions.clearActiveSession()
    sessions.clearDefaultSession()
    java.org.apache.spark.sql.delta.DeltaLog.clearCache()


def _forget_objects(gateway: Any) -> None:
    """Objects of which this process has told py4j nothing any more: the JVM would keep them, with the session in them."""
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]

    bindings = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getGateway().getBindings()
    names = [name for name in bindings.keySet().toString().strip("[]").split(", ") if not _is_object(name)]
    kept = gateway.jvm.java.util.ArrayList()
    for name in names:
        kept.add(name)
    bindings.keySet().retainAll(kept)


def _is_object(name: str) -> bool:
    return name.startswith("o") and name[1:].isdigit()
