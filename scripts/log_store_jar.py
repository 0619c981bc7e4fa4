"""`make jar`: compiles java/ into cdc_pipeline/spark/cdc-s3-log-store.jar, or with `--check` compares it with that file.

Needs the compiler of Java 17: class files of another one may differ. It compiles against the jars of a session.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cdc_pipeline.spark.java import require_java
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline.spark.stores import LOG_STORE_JAR

_ROOT = Path(__file__).parents[1]
_JAVA = 17
_EARLIEST = (1980, 1, 1, 0, 0, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the jar is not the result of its source")
    options = parser.parse_args()
    jar = Path(LOG_STORE_JAR)
    with tempfile.TemporaryDirectory() as folder:
        compile_to(Path(folder), class_path())
        built = Path(folder, "built.jar")
        pack(Path(folder), built)
        content = built.read_bytes()
    if not options.check:
        jar.write_bytes(content)
        print(f"{jar.relative_to(_ROOT)}: {len(content):,} bytes")
    elif not _is_expected_compiler():
        print(f"compiled, but not compared with {jar.name}: javac {_JAVA} is expected for that")
    elif jar.read_bytes() != content:
        print(f"{jar.relative_to(_ROOT)} is not the result of java/: run `make jar`", file=sys.stderr)
        return 1
    return 0


def class_path() -> str:
    """The jars of a session with S3."""
    spark = SparkLakehouse(master="local[1]", driver_memory="512m", stores=["s3"]).start(short_lived=True)
    assert spark._jvm is not None
    own = str(spark._jvm.System.getProperty("java.class.path"))
    urls = (spark.sparkContext.getConf().get("spark.jars") or "").split(",")
    spark.stop()
    return os.pathsep.join([own, *(url.removeprefix("file://") for url in urls)])


def compile_to(folder: Path, jars: str) -> None:
    sources = sorted(map(str, (_ROOT / "java").rglob("*.java")))
    options = ["--release", str(_JAVA), "-proc:none", "-Xlint:all,-classfile,-path", "-Werror"]
    done = subprocess.run([_javac(), *options, "-cp", jars, "-d", folder, *sources], check=False)
    if done.returncode:
        sys.exit(done.returncode)  # the compiler has said why


def _javac() -> Path:
    """The compiler beside the Java that Spark starts, else that on PATH."""
    beside = require_java().path.with_name("javac")
    found = beside if beside.exists() else shutil.which("javac")
    if found is None:
        sys.exit("there is no javac: install a JDK, on Debian openjdk-17-jdk-headless")
    return Path(found)


def _is_expected_compiler() -> bool:
    version = subprocess.run([_javac(), "-version"], capture_output=True, text=True, check=True)
    return f"javac {_JAVA}." in version.stdout + version.stderr


def pack(folder: Path, jar: Path) -> None:
    """Writes the classes in a fixed order with a fixed time, so that equal sources make equal jars."""
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*.class")):
            entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), _EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
