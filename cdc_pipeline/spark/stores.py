"""Object stores: the jars and Spark settings of a session whose lake or source is on S3.

Hadoop's client for S3 names a bundle of all of AWS's clients (558 MB); the few that it needs have 18 MB. A commit to a Delta
table is safe with several writers by `java/cdc_pipeline/ConditionalS3LogStore.java`, whose jar is part of this package.

Where and as whom to write comes from AWS's own environment variables, which delta-rs and obstore read too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from cdc_pipeline.errors import TerminalError
from cdc_pipeline.spark.jvm import spark_home

S3 = "s3"
LOG_STORE_JAR = str(Path(__file__).with_name("cdc-s3-log-store.jar"))
"""The package's own jar."""
_LOG_STORE = "cdc_pipeline.ConditionalS3LogStore"
_FILE_SYSTEM = "cdc_pipeline.FewerRequestsS3"
_FILE_MANAGER = "cdc_pipeline.ConditionalFileManager"
_SDK_VERSION = "2.57.8"
"""The newest of 2026-11. Hadoop 3.4 was built with an older one of AWS's version 2; their interfaces are stable."""
_SDK = ("s3", "s3-transfer-manager", "sts", "apache-client")
S3_EXCLUDES = ("software.amazon.awssdk:bundle", "io.netty:*", "commons-codec:*", "commons-logging:*")
"""Dependencies that PySpark ships, and the bundle."""
_HADOOP_JAR = re.compile(r"hadoop-client-api-(.+)\.jar")


def s3_packages() -> tuple[str, ...]:
    """Maven coordinates of Hadoop's client for S3, in the version of PySpark's Hadoop.

    Raises TerminalError if PySpark has no Hadoop.
    """
    jars = (_HADOOP_JAR.fullmatch(file.name) for file in (spark_home() / "jars").glob("*.jar"))
    hadoop = next((jar[1] for jar in jars if jar), None)
    if hadoop is None:
        raise TerminalError(f"{spark_home() / 'jars'} has no hadoop-client-api: a PySpark with Hadoop 3 is expected")
    sdk = (f"software.amazon.awssdk:{name}:{_SDK_VERSION}" for name in _SDK)
    return (f"org.apache.hadoop:hadoop-aws:{hadoop}", *sdk)


def s3_endpoint(variables: Mapping[str, str] = os.environ) -> str:
    """The address of another server than AWS's; empty for AWS."""
    return variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL") or ""


def s3_region(variables: Mapping[str, str] = os.environ) -> str | None:
    return variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")


def s3_settings(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Spark's settings for `s3a://`, by AWS's environment variables. Credentials stay in the environment."""
    endpoint, region = s3_endpoint(variables), s3_region(variables)
    settings = {
        "spark.delta.logStore.s3a.impl": _LOG_STORE,
        "spark.hadoop.fs.s3a.impl": _FILE_SYSTEM,
        # no requests that look whether a file to be written is a folder, and no objects for folders
        "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
    }
    if not version("pyspark").startswith("4.0."):  # which has the class that it extends in another package
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _FILE_MANAGER
    if endpoint:
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        # servers other than AWS often have no host name per bucket
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
        settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(not endpoint.startswith("http:")).lower()
    if region:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings
