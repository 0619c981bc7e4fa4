"""The jars and settings of sessions with S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import TicdcStorageSource
from cdc_pipeline.dialects.decoded_tables import DecodeSettings
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline.spark.stores import LOG_STORE_JAR, s3_settings

_ENDPOINTS = {
    "AWS itself": ({"AWS_REGION": "eu-central-1"}, {"endpoint.region": "eu-central-1"}),
    "a server": (
        {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_DEFAULT_REGION": "x"},
        {
            "endpoint": "http://minio:9000",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "endpoint.region": "x",
        },
    ),
    "an address for S3 alone": (
        {"AWS_ENDPOINT_URL": "https://other", "AWS_ENDPOINT_URL_S3": "https://s3.example.com"},
        {"endpoint": "https://s3.example.com", "path.style.access": "true", "connection.ssl.enabled": "true"},
    ),
}


@pytest.mark.parametrize("name", _ENDPOINTS)
def test_the_environment_says_where_the_store_is(name: str) -> None:
    variables, expected = _ENDPOINTS[name]
    secrets = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    settings = s3_settings({**variables, **secrets})
    prefix = "spark.hadoop.fs.s3a."
    found = {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    assert {key: value for key, value in found.items() if key not in ("performance.flags", "impl")} == expected
    assert not {"key", "secret"} & set(settings.values())


def test_only_sessions_with_s3_have_its_jars() -> None:
    without, with_s3 = SparkLakehouse().session_settings(), SparkLakehouse(stores=["s3"]).session_settings()
    assert "hadoop-aws" in with_s3["spark.jars.packages"]
    assert "hadoop-aws" not in without["spark.jars.packages"]
    assert with_s3["spark.jars"] == LOG_STORE_JAR
    assert Path(LOG_STORE_JAR).is_file()
    own = SparkLakehouse(stores=["s3"], settings={"spark.jars": "own.jar"}).session_settings()
    assert own["spark.jars"] == f"{LOG_STORE_JAR},own.jar"


def test_an_unknown_store_is_refused() -> None:
    with pytest.raises(ValueError, match="'gs' is not a store with jars of its own: s3 is expected"):
        SparkLakehouse(stores=["gs"])


@pytest.mark.parametrize(
    ("pipeline", "stores"),
    [
        (Pipeline("shop", CaptureFiles("captures"), "lake"), ()),
        (Pipeline("shop", CaptureFiles("captures"), "hdfs://host/lake"), ()),
        (Pipeline("shop", CaptureFiles("captures"), "s3a://bucket/lake"), ("s3",)),
        (
            Pipeline("shop", CaptureFiles("captures"), "lake", decoding=DecodeSettings(claim_store="s3a://b/claims")),
            ("s3",),
        ),
    ],
)
def test_a_pipeline_has_the_stores_of_its_places(pipeline: Pipeline, stores: tuple[str, ...]) -> None:
    assert pipeline.stores == stores
    assert pipeline.spark_key == ("cdc_spark_s3" if stores else "cdc_spark")


def test_the_component_supplies_a_session_with_the_stores() -> None:
    source = TicdcStorageSource(type="ticdc_storage", path="s3a://bucket/sink")
    resources = CdcPipeline(name="shop", source=source, lake="lake").build_defs().resources or {}
    (key,) = resources
    assert key == "cdc_spark_s3"
    assert resources[key].stores == ["s3"]
