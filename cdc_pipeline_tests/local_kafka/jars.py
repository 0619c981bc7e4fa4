"""The class path of the broker: released jars of Apache Kafka, fetched from Maven Central with the Ivy of PySpark.

The jars have their own cache below Ivy's home. Spark resolves its jars without this module's lock, and two concurrent
writers damage an Ivy cache.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.java import require_java
from cdc_pipeline.spark.process_lock import process_lock, report_progress

KAFKA_VERSION = "4.3.1"
"""The newest release whose dependencies all resolve from Maven Central (2026-11). It runs on Java 17 and supports the
clients of Spark (kafka-clients 3.9) and librdkafka."""
SLF4J_VERSION = "1.7.36"
"""The slf4j-api version of this Kafka. Without a binding the broker logs nothing, and PySpark's binding is for slf4j 2, so
slf4j-simple of this version is added."""
_SCALA = "2.13"
_RESOLVE_SECONDS = 900.0

# ibiblio is Ivy's name for Maven Central. Its metadata files are needed for version ranges only.
_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><ibiblio name="central" m2compatible="true" useMavenMetadata="false"/></resolvers>
</ivysettings>
"""
_IVY_MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="cdc_pipeline" module="local_kafka"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_{_SCALA}" rev="{KAFKA_VERSION}" conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="{SLF4J_VERSION}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def broker_class_path(home: Path | None = None) -> str:
    """The class path of the broker and its tools. Fetches missing jars.

    `home`: folder of the jars, by default in Ivy's home. Raises TransientError if they cannot be fetched, JavaError
    without Java.
    """
    home = Path.home() / ".ivy2.5.2" / "cdc_pipeline_kafka" if home is None else home
    stored = home / f"class_path-{KAFKA_VERSION}-{SLF4J_VERSION}"
    class_path = _read_class_path(stored)
    if class_path is not None:
        return class_path
    with report_progress("fetching Kafka's jars"), process_lock("kafka-jars"):
        class_path = _read_class_path(stored)  # another process may have fetched them while this one waited
        if class_path is None:
            _fetch(home, stored)
            class_path = _read_class_path(stored)
    if class_path is None:
        raise TransientError(f"Kafka's jars are missing although Ivy fetched them: see {stored}")
    return class_path


def _read_class_path(stored: Path) -> str | None:
    """The class path in the file `stored`; None without the file, or if a jar is missing."""
    try:
        class_path = stored.read_text().strip()
    except OSError:
        return None
    jars = class_path.split(os.pathsep)
    return class_path if all(Path(jar).is_file() for jar in jars) else None


def _fetch(home: Path, stored: Path) -> None:
    """Fetches missing jars with Ivy, then writes `stored` atomically."""
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-ivy-") as folder:
        settings, module, answer = Path(folder, "settings.xml"), Path(folder, "ivy.xml"), Path(folder, "class_path")
        settings.write_text(_IVY_SETTINGS.format(cache=home / "cache"))
        module.write_text(_IVY_MODULE)
        command = [
            *(str(require_java().path), "-cp", str(_ivy()), "org.apache.ivy.Main"),
            *("-settings", str(settings), "-ivy", str(module), "-confs", "default"),
            # excludes jars of sources and documentation
            *("-types", "jar", "bundle"),
            *("-cachepath", str(answer)),
        ]
        try:
            completed = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                timeout=_RESOLVE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TransientError(f"Ivy did not fetch Kafka's jars in {_RESOLVE_SECONDS:g} s") from None
        if completed.returncode != 0 or not answer.is_file():
            raise TransientError(f"Kafka's jars cannot be fetched: {_reason(completed.stdout)}")
        written = home / f"{stored.name}.new"
        written.write_text(answer.read_text().strip())
        written.replace(stored)


def _ivy() -> Path:
    """Path of the Ivy jar in PySpark. Raises TransientError if it is missing."""
    spec = find_spec("pyspark")
    jars = Path(spec.origin).parent / "jars" if spec is not None and spec.origin is not None else Path()
    ivy = sorted(jars.glob("ivy-*.jar"))
    if not ivy:
        raise TransientError(f"PySpark's folder {jars} has no ivy-*.jar to fetch Kafka's jars with")
    return ivy[-1]


def _reason(output: str) -> str:
    """The line of Ivy's output that best explains the failure: the cause rather than the missing jars."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" :\t")]
    for marker in ("Server access error", "Host ", "Exception", "FAILED", "not found"):
        for line in lines:
            if marker in line:
                return line
    return lines[-1] if lines else "no output of Ivy"
