"""The shop capture into a lake on S3: as into a local lake, with the lease and without Spark for small files."""

from __future__ import annotations

import json
import uuid

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.cli.status import read_status
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.lake.catalog import read_catalog
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.store import S3Folder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.raw_batches import newest_note
from cdc_pipeline_tests.support.lakes.runs import mirror_differences
from cdc_pipeline_tests.support.servers.object_store import BUCKET, ObjectStore
from cdc_pipeline_tests.support.shop import CAPTURE, TABLES


@pytest.mark.core(2)
def test_a_lake_on_s3(s3_spark: SparkSession, s3: ObjectStore) -> None:
    root = f"s3a://{BUCKET}/{uuid.uuid4().hex}"
    source = CaptureFilesSource(type="capture_files", path=str(CAPTURE))
    definitions = CdcPipeline(name="shop", source=source, lake=root).build_defs()
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_job_def("shop_ingest")
        results = [job.execute_in_process(instance=instance, raise_on_error=False) for _ in range(2)]
    assert [result.success for result in results] == [True, True]
    paths = LakePaths(root, "shop")
    names = [TableName(*table.split(".", 1)) for table in sorted(TABLES)]
    for name in names:
        truth = TABLES[str(name)]
        assert mirror_differences(s3_spark, paths, name, truth["columns"], truth["rows"]) == [], name

    # without Spark
    no_spark = Lake(None, paths)  # type: ignore[arg-type]
    assert [entry.name for entry in read_catalog(paths) if not entry.dropped] == names
    assert [mirror.name for mirror in read_status(no_spark).mirrors] == names
    note = newest_note(paths)
    assert note is not None
    assert (note["batch"], note["run_id"]) == (1, results[0].run_id)  # the second run has added nothing
    lease = S3Folder(paths.home).read(".lease")
    assert lease is not None
    assert json.loads(lease.content)["run_id"] is None
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in s3.log.read_text(encoding="utf-8", errors="replace")
