"""`dg scaffold defs cdc_pipeline.CdcPipeline NAME`: writes a YAML file that loads without edits."""

from __future__ import annotations

import re
from typing import Literal

import dagster as dg
from pydantic import BaseModel, Field

_SOURCES = {
    "kafka": """\
    type: kafka
    bootstrap_servers: broker:9092 # comma-separated list of host:port
    topics: [{name}] # for a topic per table: topic_pattern, a regular expression on complete names
    start: earliest # or latest, {{timestamp: 2026-11-22T10:00:00Z}}, {{commit_tso: 470613987560259584}}
    # security: # secrets belong in the environment
    #   protocol: SASL_SSL # or SSL, SASL_PLAINTEXT
    #   mechanism: SCRAM-SHA-512
    #   username: "{{{{ env.KAFKA_USER }}}}"
    #   password: "{{{{ env.KAFKA_PASSWORD }}}}"
    #   ca: /etc/ssl/kafka-ca.pem
""",
    "capture_files": """\
    type: capture_files
    path: data/captures/{name} # *.jsonl or *.jsonl.gz, one record per line as `kcat -C -J` prints it
""",
    "ticdc_storage": """\
    type: ticdc_storage
    path: /data/ticdc/{name} # folder or Hadoop URI of the changefeed's sink URI
""",
}
_FILE = """\
# Canal-JSON change records to mirror tables. Check with: dg check defs, cdc-pipeline doctor
# All fields: dg utils inspect-component cdc_pipeline.CdcPipeline --defs-yaml-schema
type: {type}

attributes:
  name: {name} # first part of the asset keys, and folder in the lake
  source:
{source}  lake: data/lake # a folder (relative: to where Dagster starts, of cdc-pipeline to the project) or a Hadoop URI
  time_zone: UTC # of TIMESTAMP values: TiCDC's --tz, the time zone of Canal's JVM
  ddl_policy: apply # or keep dropped columns and tables, or hold tables before such statements
  sensor:
    running: false # true: on by default, without turning it on in the UI
  # follow: {{enabled: true}} # one run ingests batch after batch; without it, each batch is a run
  # include: ["shop.*"] # these tables only
  # metadata_columns: [_commit_ts] # or none; without the field also topic, partition and offset of each row's message
  # owners: [team:data]
  # tags: {{tier: gold}}
  # alerts to Slack, by e-mail, to a webhook and others: the field notify, `cdc-pipeline docs operations alerts`
  # freshness: {{warn_minutes: 10, fail_minutes: 60}}
  # keys: {{shop.events: [user, at]}} # for tables without a key in their DDL
"""
_PYTHON = """\
import dagster as dg

from cdc_pipeline import CaptureFilesSource, CdcPipeline


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> CdcPipeline:
    # other sources: KafkaSource, TicdcStorageSource
    source = CaptureFilesSource(type="capture_files", path="data/captures/{name}")
    return CdcPipeline(name="{name}", source=source, lake="data/lake")
"""


class ScaffoldParams(BaseModel):
    """Parameters of `dg scaffold`."""

    source: Literal["kafka", "capture_files", "ticdc_storage"] = Field(
        default="kafka", description="Type of the source: kafka, capture_files or ticdc_storage."
    )


class PipelineScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes a commented `defs.yaml` with common fields, or `component.py`."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        folder = request.target_path.parent if request.append else request.target_path
        name = pipeline_name(folder.name)
        if request.scaffold_format == "python":
            (folder / "component.py").write_text(_PYTHON.format(name=name), encoding="utf-8")
            return
        source = _SOURCES[request.params.source].format(name=name)
        text = _FILE.format(type=request.type_name, name=name, source=source)
        if request.append:
            with request.target_path.open("a", encoding="utf-8") as stream:
                stream.write(f"---\n{text}")
        else:
            (folder / "defs.yaml").write_text(text, encoding="utf-8")


def pipeline_name(folder: str) -> str:
    """A valid pipeline name from the name of a folder: a letter, then letters, digits and underscores."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", folder)
    return name if re.match(r"[A-Za-z]", name) else f"p_{name}"
