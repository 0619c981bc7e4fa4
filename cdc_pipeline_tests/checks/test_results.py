"""Text from upstream in what Dagster's UI renders as Markdown: only code spans contain it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from markdown_it import MarkdownIt

from cdc_pipeline.assets.mirrors import mirror_spec
from cdc_pipeline.checks import streams
from cdc_pipeline.checks.contract import TableValidation, contract_result
from cdc_pipeline.checks.cuts import attempt_result, ddl_applied_result, mirror_gaps_results, no_gaps_result
from cdc_pipeline.checks.records import dead_letters_result
from cdc_pipeline.checks.results import code_span, mirror_results, tables_result
from cdc_pipeline.checks.streams import FreshnessLimits, fresh_result, open_transactions_result
from cdc_pipeline.contracts.rules import Breach
from cdc_pipeline.lake.catalog import CatalogColumn, CatalogEntry
from cdc_pipeline.mirrors.changes.progress import StreamProgress
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.source import Intake, OpenTransaction
from cdc_pipeline_tests.support.lakes.mirror_checks import CHECKED

_KEY = dg.AssetKey(["shop", "consistent_cuts"])

_HOSTILE = (
    *("![x](http://evil.example/p.png)", "[a](http://e/)", "<img src=http://e/p.png>", "<a href='http://e/'>x</a>"),
    *("http://evil.example/", "<http://e/>", "www.evil.example", "evil@e.example", "[x]: http://e/", "| a | [b](c) |"),
    *(
        "`",
        "``",
        "a`b``c```d",
        "`[a](http://e/)`",
        "`` [a](http://e/) `",
        "\\`[a](http://e/)\\`",
        "```\n[a](http://e/)",
    ),
    *(
        "x\n\n[a](http://e/)",
        "x\r\n# [a](http://e/)",
        "\n---\n",
        "    [a](http://e/)",
        "&lt;b>",
        "*a* __b__ ~~c~~",
        "",
        " ",
    ),
)


def _rendered(markdown: str) -> tuple[str, list[str]]:
    """The HTML of the Markdown without its code spans, and the contents of these."""
    html = MarkdownIt("commonmark").enable("table").render(markdown)
    spans = re.compile("<code>(.*?)</code>", re.DOTALL)
    return spans.sub("", html), spans.findall(html)


@pytest.mark.parametrize("text", _HOSTILE)
def test_a_span_holds_the_whole_text(text: str) -> None:
    markdown = f"before {code_span(text)} and {code_span('`a')} after"
    shown, spans = _rendered(markdown)
    assert (shown, len(spans)) == ("<p>before  and  after</p>\n", 2)
    (token,) = (token for token in MarkdownIt().parse(markdown) if token.type == "inline")
    contents = [child.content for child in token.children or () if child.type == "code_inline"]
    assert [content.split() for content in contents] == [text.split(), ["`a"]]


def _check_results(text: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.AssetCheckResult]:
    entry = MirrorEntry(TableName("db", text), "m", "/lake", 1, 1, 2, (f"a gap: {text}",))
    progress = StreamProgress(1, has_tsos=True, resolved_tso=1 << 18, held_by=None, without_watermark=(f"{text}/0",))
    report = CutReport(True, 3, 1 << 18, progress, (entry,))
    recent: Any = SimpleNamespace(cached_query=lambda name, table_version, query: rows)
    lake: Any = SimpleNamespace(paths=SimpleNamespace(pipeline="shop"), state=lambda table: None)
    yield no_gaps_result(report, _KEY)
    yield from mirror_gaps_results(report, None, CHECKED)
    name = TableName("db", text)
    yield from mirror_results("keys_hold", CHECKED, {name: "all rows"}, {str(name): f"1 key: {text}/0@1"}, "Rebuild")
    yield fresh_result(report, FreshnessLimits(warn=timedelta(0)), _KEY, report.resolved_time)
    yield tables_result("keys_hold", _KEY, {f"db.{text}": f"1 key: {text}/0@1"}, "Rebuild", dg.MetadataValue.int(1))
    yield attempt_result(_KEY, f"attempt 3 failed: {text}", 3)
    breach = Breach("op.isin", "an operation", 1, (f"{text}/0@1",))
    yield contract_result(_KEY, TableValidation("change_log", 1, 1, (breach,)))
    held = OpenTransaction(text, 0, 1, 2, is_overdue=True)
    yield open_transactions_result(Intake((), (), (), 0, open_transactions=(held,)), _KEY)
    rows = [{"rule": "table.not_null", "count": 1, "tables": [text], "examples": [f"{text}/0@1"]}]
    yield dead_letters_result(lake, recent, _KEY)
    rows = [{"topic": text, "partition": 0, "offset": 1, "sql": text, "effect": text, "status": "held"}]
    yield ddl_applied_result(lake, recent, _KEY)
    lost = [{"topic": text, "partition": 0, "first": 1, "next": 2}]
    monkeypatch.setattr(streams, "read_rows", lambda *_, **__: [{"batch_id": 1, "lost": lost}])
    yield streams.lost_offsets_result(lake, _KEY)


@pytest.mark.parametrize("text", _HOSTILE)
def test_descriptions_of_checks(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outside: dict[str, str] = {}
    for own in ("orders", text):
        for number, result in enumerate(_check_results(own, monkeypatch)):
            shown, spans = _rendered(result.description or "")
            assert spans
            assert outside.setdefault(f"{number} {result.check_name}", shown) == shown


@pytest.mark.parametrize("text", _HOSTILE)
def test_description_and_columns_of_a_mirror(text: str) -> None:
    pipeline = Pipeline("shop", CaptureFiles("captures"), "/lake")
    kinds: list[dict[str, Any]] = [{}, {"merged": (text,)}, {"dropped": True}, {"dropped": True, "moved_to": text}]
    for more in kinds:
        outside = set()
        for own in ("orders", text):
            columns = (CatalogColumn("id", "int", f"enum('{own}')"), CatalogColumn("_offset", "bigint", ""))
            spec = mirror_spec(pipeline, CatalogEntry("db", own, "/lake/t", columns, **more))
            shown = [spec.description, *(c.description for c in spec.metadata["dagster/column_schema"].columns)]
            outside.add(tuple(_rendered(one or "")[0] for one in shown))
        assert len(outside) == 1
