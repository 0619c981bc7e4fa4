"""Each check has a text in Dagster's UI, and a line in docs/operations.md; those of mirrors are checks of all, too."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg

from cdc_pipeline.checks.specs import check_spec, mirror_check_specs
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.run_fields import FreshnessSettings
from cdc_pipeline.component.source_field import KafkaSource

_DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


def test_each_check_is_described(tmp_path: Path) -> None:
    source = KafkaSource(type="kafka", bootstrap_servers="localhost:9092", topics=["t"])
    # with the checks that not every pipeline has
    limits = FreshnessSettings(warn_minutes=10)
    pipeline = CdcPipeline(name="orders", source=source, lake=str(tmp_path), freshness=limits)
    graph = pipeline.build_defs().resolve_asset_graph()
    checks = {key.name: graph.get_check_spec(key) for key in graph.asset_check_keys}
    section = _DOCS.read_text(encoding="utf-8").partition("\n## Checks\n")[2].partition("\n## ")[0]
    documented = {name: "blocking" in rest for name, rest in re.findall(r"^\| `(\w+)`([^|]*)\|", section, re.MULTILINE)}
    assert {name: check.blocking for name, check in checks.items()} == documented
    for name, check in checks.items():
        assert check == check_spec(name, check.asset_key)
        assert check.description
    for check in mirror_check_specs(dg.AssetKey(["orders", "mirror", "db", "t"])):
        assert check.description
        assert documented[check.name] is check.blocking is False
