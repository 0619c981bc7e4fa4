"""The broker's class path: the released jars of Apache Kafka, fetched from Maven Central with the Ivy inside PySpark.

They stay in a folder of their own below Ivy's home: Spark resolves its jars without our lock, and two that fill one
cache at the same time spoil it for each other.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.java import require_java
from cdc_pipeline.spark.process_lock import told, turn

KAFKA_VERSION = "4.3.1"
"""The newest release that resolves from Maven Central with all it needs (measured 2026-11). It runs on Java 17, and both
kafka-clients 3.9 (Spark's) and librdkafka talk to it."""
SLF4J_VERSION = "1.7.36"
"""The slf4j-api that this Kafka asks for. Its jars bring no binding, and without one the broker logs nothing: PySpark's
is made for slf4j 2, so the smallest one of this version comes along."""
_SCALA = "2.13"
_RESOLVE_SECONDS = 900.0

# ibiblio is Ivy's own name for Maven Central. Its metadata files are of use for version ranges only, of which there are
# none here.
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
    """The class path of the broker and of its tools; the jars are fetched when they are not there yet.

    `home` is where they are kept, by default a folder in Ivy's home. Raises TransientError where they cannot be fetched,
    JavaError where there is no Java.
    """
    home = Path.home() / ".ivy2.5.2" / "cdc_pipeline_kafka" if home is None else home
    known = home / f"class_path-{KAFKA_VERSION}-{SLF4J_VERSION}"
    found = _whole(known)
    if found is not None:
        return found
    with told("fetching Kafka's jars"), turn("kafka-jars"):
        found = _whole(known)  # the process before us in the queue may have done it
        if found is None:
            _resolve(home, known)
            found = _whole(known)
    if found is None:
        raise TransientError(f"Kafka's jars are not all where Ivy says they are: see {known}")
    return found


def _whole(known: Path) -> str | None:
    """The class path in the file `known`, unless a jar of it is gone."""
    try:
        class_path = known.read_text().strip()
    except OSError:
        return None
    jars = class_path.split(os.pathsep)
    return class_path if all(Path(jar).is_file() for jar in jars) else None


def _resolve(home: Path, known: Path) -> None:
    """Lets Ivy fetch what is missing, and writes `known` as the last thing, in one step."""
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-ivy-") as folder:
        settings, module, answer = Path(folder, "settings.xml"), Path(folder, "ivy.xml"), Path(folder, "class_path")
        settings.write_text(_IVY_SETTINGS.format(cache=home / "cache"))
        module.write_text(_IVY_MODULE)
        command = [
            *(str(require_java().path), "-cp", str(_ivy()), "org.apache.ivy.Main"),
            *("-settings", str(settings), "-ivy", str(module), "-confs", "default"),
            # without it the jars of sources and of documentation come along
            *("-types", "jar", "bundle"),
            *("-cachepath", str(answer)),
        ]
        try:
            ended = subprocess.run(
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
        if ended.returncode != 0 or not answer.is_file():
            raise TransientError(f"Kafka's jars cannot be fetched: {_reason(ended.stdout)}")
        written = home / f"{known.name}.new"
        written.write_text(answer.read_text().strip())
        written.replace(known)


def _ivy() -> Path:
    """The jar of Ivy that PySpark ships. Raises TransientError where there is none."""
    spec = find_spec("pyspark")
    jars = Path(spec.origin).parent / "jars" if spec is not None and spec.origin is not None else Path()
    found = sorted(jars.glob("ivy-*.jar"))
    if not found:
        raise TransientError(f"PySpark's folder {jars} has no ivy-*.jar to fetch Kafka's jars with")
    return found[-1]


def _reason(output: str) -> str:
    """The line of Ivy's output that says most: what went wrong on the way before what was missing in the end."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" :\t")]
    for telling in ("Server access error", "Host ", "Exception", "FAILED", "not found"):
        for line in lines:
            if telling in line:
                return line
    return lines[-1] if lines else "Ivy wrote nothing"
