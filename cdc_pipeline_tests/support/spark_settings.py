"""Settings of the test JVMs, tuned for many small queries that run once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MARIADB_DRIVER = "org.mariadb.jdbc:mariadb-java-client:4.0.0"
"""The JDBC driver of tests. Version 4 has no dependencies; version 3 has JNA for logins by Windows."""

# Java's default, but given as an option it keeps the package from writing archives of classes: JVMs of tests have many
# different options, and each combination would have its own.
_NO_ARCHIVE = "-Xshare:auto"
# For a JVM that lives for less than four minutes. Measured on ingests of `shop-canal` in two processes: two ingests take 79
# CPU-seconds with the first compiler and 114 with both; from the seventh on both compilers are faster. The first compiler
# alone gets 48 MB for code by default. Spark fills them within 25 s, and the JVM goes on interpreted.
JVM_OPTIONS = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m {_NO_ARCHIVE}"

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Interprets queries: for small ones, compilation costs more than it saves."""

SMALL: Mapping[str, str] = {
    **INTERPRETED,
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {_NO_ARCHIVE}",
    # Delta caches the state of each opened table; the suite opens thousands of tables once each
    "spark.databricks.delta.delta.log.cacheSize": "150",
}
"""Settings of the session that the tests share."""

SHORT_LIVED: Mapping[str, str] = {**SMALL, "spark.driver.extraJavaOptions": JVM_OPTIONS}
"""Settings of a session in a process that a test starts."""


def write_defaults(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Writes spark-defaults.conf for a process with its own session, and returns the environment variables for it.

    Settings that the process itself passes to its session override these.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"{name} {value}\n" for name, value in settings.items())
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(folder)}
