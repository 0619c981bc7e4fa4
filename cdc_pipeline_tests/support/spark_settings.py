"""How the JVMs of the tests run: many small queries, each run once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# For a JVM that lives for less than four minutes. Measured on ingests of `shop-canal` in two processes: two ingests take 79
# CPU-seconds with the first compiler and 114 with both; from the seventh on both compilers are faster. The first compiler
# alone gets 48 MB for code by default. Spark fills them within 25 s, and the JVM goes on interpreted.
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m"

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Compiling a query costs more than it gains."""

SMALL: Mapping[str, str] = {
    **INTERPRETED,
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    # Delta keeps the state of each table that it has opened; the suite opens some thousand lakes once each
    "spark.databricks.delta.delta.log.cacheSize": "150",
}
"""Settings of the suite's own session."""

SHORT_LIVED: Mapping[str, str] = {**SMALL, "spark.driver.extraJavaOptions": JVM_OPTIONS}
"""Settings of the session of another process."""


def write_defaults(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Writes spark-defaults.conf for a process that starts its own session. Returns the environment that names it.

    The settings that the process itself gives to its session win.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"{name} {value}\n" for name, value in settings.items())
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(folder)}
