"""The generated batches of benchmarks contain what they claim, and each benchmark reports its figures with their targets."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import (
    beside,
    days,
    decode,
    dumpling_export,
    end_to_end,
    follow_memory,
    growth,
    latency,
    many_topics,
    memory,
    peers,
    quick,
    readers,
    requests,
    results,
    snapshot,
    start,
    straight_line,
    tables,
    verify,
    warm_batch,
)
from benchmarks.batches import BenchmarkLake, Cost
from benchmarks.broker_batches import Batch, Stage
from benchmarks.dumpling_export import TABLE, write_export
from benchmarks.messages import SMALL, topic_records
from benchmarks.paimon.sync import Mark, steady_marks
from benchmarks.results import Figure
from benchmarks.tables import changes, creation
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.export import open_export
from cdc_pipeline_tests.support.exports import rows_of

_TABLES, _EVENTS = 2, 20
_ROOT = Path(__file__).parents[1]
_MODULES = (
    "days",
    "decode",
    "end_to_end",
    "follow_memory",
    "growth",
    "latency",
    "many_topics",
    "memory",
    "peers",
    "readers",
    "requests",
    "snapshot",
    "start",
    "tables",
    "verify",
    "warm_batch",
)


def test_a_batch_of_each_benchmark_has_the_changes_it_counts(spark: SparkSession, tmp_path: Path) -> None:
    lake = BenchmarkLake(spark, tmp_path / "lake")
    costs = [
        lake.run(creation(spark, _TABLES, _EVENTS), _EVENTS),
        lake.run(changes(spark, 2, _TABLES, _EVENTS), _EVENTS),
    ]
    assert all(cost.cpu > 0 and 0 < cost.cut < cost.total for cost in costs)
    wanted = [dict.fromkeys(range(_EVENTS // _TABLES), 1) for _ in range(_TABLES)]
    for number in range(_EVENTS):
        rows, key = wanted[number % _TABLES], number // _TABLES
        kind = (key + 3 * 2) % 10
        if kind < 7:
            rows[key] = 2
        elif kind < 9:
            rows[key + _EVENTS * 2] = 2
        else:
            del rows[key]
    for number, rows in enumerate(wanted):
        mirror = spark.read.format("delta").load(lake.paths.mirror(TableName("db", f"t_{number}")))
        found = {row["id"]: (row["v"], row["n"]) for row in mirror.collect()}
        assert found == {key: (f"value of {key} in batch {batch}", batch) for key, batch in rows.items()}


def test_the_changes_to_verify_prove_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    with patch("benchmarks.batches.ROWS_OF_A_BATCH", 60), patch("benchmarks.verify.ROWS_OF_A_BATCH", 60):
        verify.prepare(spark, str(tmp_path), 100, 20)
    (found,) = verify.verify(spark, str(tmp_path))
    assert (found.changes, found.proved, found.contradicted) == (20, 20, 0)


def _batch(raw: float, decode_seconds: float, mirror: float, events: int = 350) -> Batch:
    seconds = {"raw": raw, "decode": decode_seconds, "mirror": mirror}
    return Batch(events, 50, tuple(Stage(name, value, 2 * value) for name, value in seconds.items()))


_BATCHES = [_batch(1, 2, 3), _batch(2, 2, 5), _batch(9, 2, 3)]
_PAIMON = peers.Run((40_000, 50_000), 1_000_000_000, {"disk": 40}, (20_000, 25_000))
_ROUNDS = [
    {"line": peers.Run((line, 40_000), 3_000_000_000, {"disk": 200}), "paimon": _PAIMON, "ours": ours}
    for line, ours in (
        (20_000, peers.Run((10_000, 20_000), 4_000_000_000, {"disk": 240, "disk_raw": 80})),
        (40_000, peers.Run((36_000, 30_000), 4_000_000_000, {"disk": 240, "disk_raw": 80})),
        (30_000, peers.Run((21_000, 40_000), 4_000_000_000, {"disk": 240, "disk_raw": 80})),
    )
]


def _snapshot(floor: float, load: float, adoption: float) -> dict[str, snapshot.Run]:
    seconds = {"floor": floor, "load": load, "adoption": adoption}
    return {name: snapshot.Run(value, 2 * value, 9, 2_000_000_000) for name, value in seconds.items()}


_COSTS = [Cost(0.3, 0.7, 1.0, 3.0), Cost(0.1, 0.5, 0.6, 2.0), Cost(0.2, 0.6, 0.8, 2.4)]


@pytest.mark.parametrize(
    ("figures", "lines"),
    [
        (
            decode.figures_of([decode.Measured(490, 1, 6, 4, 8), decode.Measured(1200, 1, 5, 5, 10)]),
            [
                "decode_small_ratio 2.00 ratio 2 met",
                "decode_small_floor_seconds 6.00 s - -",
                "decode_small_raw_seconds 4.00 s - -",
                "decode_small_decode_seconds 8.00 s - -",
                "decode_large_ratio 3.00 ratio 2 missed",
                "decode_large_floor_seconds 5.00 s - -",
                "decode_large_raw_seconds 5.00 s - -",
                "decode_large_decode_seconds 10.0 s - -",
            ],
        ),
        (
            end_to_end.figures_of(1, [_batch(1, 1, 2, 200_000)], 3_000_000_000),
            [
                "end_to_end_1_partition_per_cpu_second 25000 events/CPU-s 26000 missed",
                "end_to_end_1_partition_per_second 50000 events/s 45000 met",
                "end_to_end_1_partition_peak_memory 3.00 GB - -",
            ],
        ),
        (
            tables.figures_of(Cost(1, 2, 3, 9), Cost(2, 4, 12, 40)),
            [
                "tables_ratio 3.00 ratio 3 met",
                "tables_cut_ratio 4.00 ratio - -",
                "tables_one_seconds 6.00 s - -",
                "tables_many_seconds 18.0 s - -",
                "tables_many_cpu_seconds 40.0 CPU-s - -",
            ],
        ),
        (
            growth.figures_of(5.0, 8.0),
            [
                "growth_ratio 1.60 ratio 1.5 missed",
                "growth_small_seconds 5.00 s - -",
                "growth_large_seconds 8.00 s - -",
            ],
        ),
        (
            memory.figures_of(memory.Run(1, 2_000_000_000, 1, 1), memory.Run(1, 2_200_000_000, 1, 1)),
            ["memory_ratio 1.10 ratio 1.2 met", "memory_small_peak 2000 MB - -", "memory_large_peak 2200 MB - -"],
        ),
        (
            follow_memory.figures_of(
                [
                    follow_memory.Moment(40, 400_000_000, 1_600_000_000, 200_000_000),
                    follow_memory.Moment(400, 500_000_000, 1_600_000_000, 210_000_000),
                ]
            ),
            [
                "follow_memory_ratio 1.05 ratio 1.2 met",
                "follow_memory_first_cuts 40.0 cuts - -",
                "follow_memory_first_python 400 MB - -",
                "follow_memory_first_jvm 1600 MB - -",
                "follow_memory_first_live_heap 200 MB - -",
                "follow_memory_last_cuts 400 cuts - -",
                "follow_memory_last_python 500 MB - -",
                "follow_memory_last_jvm 1600 MB - -",
                "follow_memory_last_live_heap 210 MB - -",
            ],
        ),
        (
            start.figures_of([start.Run(19, 30, 40, 70)], [start.Run(None, None, 9, 15)]),
            [
                "start_first_record_seconds 19.0 s 20 met",
                "start_first_cut_seconds 30.0 s - -",
                "start_first_run_cpu_seconds 70.0 CPU-s - -",
                "start_no_new_records_seconds 9.00 s 8 missed",
                "start_no_new_records_cpu_seconds 15.0 CPU-s - -",
            ],
        ),
        (
            days.figures_of([Cost(1, 1, 2, 5)], [Cost(1, 1, 2.4, 7)]),
            [
                "days_seconds_ratio 1.10 ratio 1.2 met",
                "days_cpu_ratio 1.40 ratio 1.2 missed",
                "days_early_seconds 4.00 s - -",
                "days_late_seconds 4.40 s - -",
                "days_late_cpu_seconds 7.00 CPU-s - -",
            ],
        ),
        (
            # commits from 1 to 10,000 ms, to 20,000 ms and to 30,000 ms: 6 to 16 s, 2 to 12 s, and 1 to 11 s
            latency.figures_of(
                [
                    latency.Cut(0, 4_000, 0),
                    latency.Cut(10_000, 16_000, 9),
                    latency.Cut(20_000, 22_000, 9),
                    latency.Cut(30_000, 31_000, 9),
                ]
            ),
            [
                "latency_median_seconds 8.00 s 8 met",
                "latency_95_percent_seconds 14.5 s 15 met",
                "latency_worst_seconds 16.0 s 30 met",
                "latency_cut_interval_seconds 9.00 s - -",
                "latency_warm_median_seconds 6.50 s - -",
                "latency_warm_95_percent_seconds 11.0 s - -",
                "latency_warm_worst_seconds 12.0 s - -",
            ],
        ),
        (
            many_topics.figures_of(300, _BATCHES),
            [
                "many_topics_300_raw_seconds 2.00 s 8 met",
                "many_topics_300_batch_seconds 9.00 s - -",
                "many_topics_300_batch_cpu_seconds 18.0 CPU-s - -",
            ],
        ),
        (
            warm_batch.figures_of(_COSTS),
            [
                "warm_batch_seconds 1.60 s 2 met",
                "warm_batch_cpu_seconds 2.40 CPU-s 2.5 met",
                "warm_batch_raw_seconds 0.200 s - -",
                "warm_batch_decode_seconds 0.600 s - -",
                "warm_batch_cut_seconds 0.800 s - -",
            ],
        ),
        (
            peers.figures_of(_ROUNDS),
            [
                "peers_ours_over_line 0.700 ratio 0.85 missed",
                "peers_ours_over_paimon 0.525 ratio - -",
                "peers_ours_per_cpu_second 21000 events/CPU-s - -",
                "peers_ours_per_second 30000 events/s - -",
                "peers_ours_peak_memory 4.00 GB - -",
                "peers_ours_disk_per_event 240 B - -",
                "peers_ours_disk_raw_per_event 80.0 B - -",
                "peers_line_per_cpu_second 30000 events/CPU-s - -",
                "peers_line_per_second 40000 events/s - -",
                "peers_line_peak_memory 3.00 GB - -",
                "peers_line_disk_per_event 200 B - -",
                "peers_paimon_per_cpu_second 40000 events/CPU-s - -",
                "peers_paimon_per_second 50000 events/s - -",
                "peers_paimon_whole_per_cpu_second 20000 events/CPU-s - -",
                "peers_paimon_whole_per_second 25000 events/s - -",
                "peers_paimon_peak_memory 1.00 GB - -",
                "peers_paimon_disk_per_event 40.0 B - -",
            ],
        ),
        (
            readers.figures_of(500, {"read": readers.Pair(0.3, 0.2), "first_read": readers.Pair(0.6, 0.4)}),
            [
                "readers_500_read_ratio 1.50 ratio 1.3 missed",
                "readers_500_read_mirror_seconds 0.300 s - -",
                "readers_500_read_fresh_seconds 0.200 s - -",
                "readers_500_first_read_ratio 1.50 ratio - -",
                "readers_500_first_read_mirror_seconds 0.600 s - -",
                "readers_500_first_read_fresh_seconds 0.400 s - -",
            ],
        ),
        (
            requests.figures_of(
                requests.Measured(
                    {"first_run": Counter({"GET commit": 1000, "PUT crc": 301}), "idle_run": Counter({"LIST log": 60})},
                    _COSTS,
                    [Cost(0.1, 0.3, 0.4, 1.0)],
                )
            ),
            [
                "requests_first_run 1301 requests 1300 missed",
                "requests_idle_run 60.0 requests 60 met",
                "requests_warm_seconds_ratio 2.00 ratio 2 met",
                "requests_warm_s3_seconds 1.60 s - -",
                "requests_warm_local_seconds 0.800 s - -",
            ],
        ),
        (
            snapshot.figures_of([_snapshot(10, 28, 35), _snapshot(11, 28, 35), _snapshot(8, 20, 25)]),
            [
                "snapshot_load_ratio 2.55 ratio 3 met",
                "snapshot_load_and_adoption_ratio 5.73 ratio 6 met",
                "snapshot_floor_seconds 10.0 s - -",
                "snapshot_floor_cpu_seconds 20.0 CPU-s - -",
                "snapshot_floor_peak 2000 MB - -",
                "snapshot_load_seconds 28.0 s - -",
                "snapshot_load_cpu_seconds 56.0 CPU-s - -",
                "snapshot_load_peak 2000 MB - -",
                "snapshot_adoption_seconds 35.0 s - -",
                "snapshot_adoption_cpu_seconds 70.0 CPU-s - -",
                "snapshot_adoption_peak 2000 MB - -",
            ],
        ),
        (
            snapshot.memory_figures_of(
                {"load": snapshot.Run(1, 1, 1, 400_000_000), "adoption": snapshot.Run(1, 1, 1, 2_000_000_000)},
                {"load": snapshot.Run(5, 5, 1, 500_000_000), "adoption": snapshot.Run(5, 5, 1, 2_200_000_000)},
            ),
            [
                "snapshot_load_memory_ratio 1.25 ratio 1.2 missed",
                "snapshot_load_small_peak 400 MB - -",
                "snapshot_load_large_peak 500 MB - -",
                "snapshot_adoption_memory_ratio 1.10 ratio 1.2 met",
                "snapshot_adoption_small_peak 2000 MB - -",
                "snapshot_adoption_large_peak 2200 MB - -",
            ],
        ),
        (
            verify.figures_of(verify.Run(61, 100, 1_900_000_000)),
            ["verify_seconds 61.0 s 60 missed", "verify_peak_memory 1.90 GB 2 met", "verify_cpu_seconds 100 CPU-s - -"],
        ),
    ],
    ids=(
        *("decode", "end_to_end", "tables", "growth", "memory", "follow_memory", "start", "days", "latency"),
        *("many_topics", "warm_batch", "peers", "readers", "requests", "snapshot", "snapshot_memory", "verify"),
    ),
)
def test_figures_of_each_benchmark(figures: list[Figure], lines: list[str]) -> None:
    assert [figure.line for figure in figures] == [f"RESULT {line}" for line in lines]


@pytest.mark.parametrize(("count", "target"), [(300, 8.0), (1000, 25.0), (50, None)])
def test_the_target_of_many_topics_depends_on_their_number(count: int, target: float | None) -> None:
    raw, *others = many_topics.figures_of(count, _BATCHES)
    assert raw.target == target
    assert {figure.target for figure in others} == {None}


def test_requests_by_method_and_object() -> None:
    lines = """
127.0.0.1 - - [29/Nov/2026 04:51:30] "GET /lake?list-type=2&prefix=x/raw/_delta_log/&start-after=x HTTP/1.1" 200 -
127.0.0.1 - - [29/Nov/2026 04:51:30] "\x1b[33mHEAD /lake/x/raw/_delta_log HTTP/1.1\x1b[0m" 404 -
127.0.0.1 - - [29/Nov/2026 04:51:30] "GET /lake/x/raw/_delta_log/00000000000000000007.json HTTP/1.1" 200 -
127.0.0.1 - - [29/Nov/2026 04:51:30] "PUT /lake/x/raw/_delta_log/.00000000000000000007.crc.5d.tmp HTTP/1.1" 200 -
127.0.0.1 - - [29/Nov/2026 04:51:30] "GET /lake/x/raw/_delta_log/_last_checkpoint HTTP/1.1" 404 -
127.0.0.1 - - [29/Nov/2026 04:51:30] "POST /lake/x/a%20b/part-1.zstd.parquet?uploads HTTP/1.1" 200 -
127.0.0.1 - - [29/Nov/2026 04:51:30] "DELETE /lake/x/.lease HTTP/1.1" 204 -
"""
    assert list(requests.requests_in(lines)) == [
        *("LIST log", "HEAD log", "GET commit", "PUT crc", "GET checkpoint", "POST parquet", "DELETE other"),
    ]


def test_peers_without_paimon() -> None:
    rounds = [{"line": runs["line"], "ours": runs["ours"]} for runs in _ROUNDS]
    assert [figure.name for figure in peers.figures_of(rounds) if "paimon" in figure.name] == []


def test_the_steady_rate_begins_after_a_third_and_ends_before_the_last_checkpoint() -> None:
    marks = [Mark(0, 0, 0), *(Mark(10 + 3 * n, 15 + 5 * n, 100 * n) for n in range(1, 10))]
    assert steady_marks(marks) == (Mark(19, 30, 300), Mark(34, 55, 800))
    with pytest.raises(RuntimeError, match="--events"):
        steady_marks(marks[:3])


def test_the_straight_line_keeps_the_newest_change_of_each_key(spark: SparkSession) -> None:
    records = topic_records(spark, SMALL, 0, 20_000).withColumn("batch_id", F.lit(0))
    changes = straight_line.changes_of(records)
    wanted: dict[str, tuple[int, str | None]] = {}
    count = 0
    for record in records.select("value").collect():
        message = json.loads(record.value)
        for data in message["data"] or ():
            count += 1
            newest = (message["_tidb"]["commitTs"], None if message["type"] == "DELETE" else data["balance"])
            wanted[data["id"]] = max(wanted.get(data["id"], newest), newest, key=lambda change: change[0])
    assert changes.count() == count
    found = straight_line.newest_of(changes).collect()
    assert {str(row.id): (row._commit_ts, None if row.deleted else str(row.balance)) for row in found} == wanted
    assert len(found) == len(wanted) < count


def test_a_batch_of_many_topics_has_its_changes_and_a_watermark_in_each_topic() -> None:
    topics = ["a", "b", "c"]
    batches = [many_topics.batch_records(topics, number, 4) for number in range(2)]
    messages = [[(record.topic, json.loads(record.value or b"")) for record in records] for records in batches]
    kinds = [[(topic, message["type"]) for topic, message in each] for each in messages]
    common = [("a", "INSERT")] * 4 + [(topic, "TIDB_WATERMARK") for topic in topics]
    assert kinds == [[("a", "CREATE"), *common], common]
    assert {record.partition for records in batches for record in records} == {0}
    rows = [message["data"][0]["id"] for each in messages for _, message in each if message["type"] == "INSERT"]
    assert rows == [str(key) for key in range(8)]
    in_order = [message for each in messages for _, message in each]
    tsos = [message["_tidb"].get("commitTs") or message["_tidb"]["watermarkTs"] for message in in_order]
    assert tsos == sorted(tsos)
    # one TSO in all topics
    assert len(set(tsos)) == len(tsos) - 2 * (len(topics) - 1)


def test_an_export_in_files_and_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumpling_export, "_STATEMENT_BYTES", 2000)
    size = write_export(tmp_path / "export", 300, 7, file_bytes=20_000)
    export = open_export("dumpling", str(tmp_path / "export"))
    (table,) = export.tables
    assert (table.name, export.position.tso, len(table.schema.columns)) == (TABLE, 7, 12)
    assert sum(file.size for file in table.files) == size
    assert 180 < size / 300 < 220
    assert len(table.files) > 2
    rows = rows_of(export, str(TABLE))
    assert [row["id"] for row in rows] == [str(number) for number in range(1, 301)]
    assert any(row["comment"] is None for row in rows)
    assert all(json.loads(row["attributes"] or "")["city"] for row in rows)


def test_each_process_of_the_snapshot_benchmark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count the rows themselves."""
    monkeypatch.setattr(snapshot, "local_spark", lambda: spark)
    write_export(tmp_path / "export", 300, snapshot.TSO)
    job = snapshot.Job(str(tmp_path / "export"), 300, str(tmp_path / "tables"))
    for measure in snapshot.MEASURED.values():
        cost = measure(job)
        assert min(cost.seconds, cost.cpu_seconds) > 0


def _help_of(module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    monkeypatch.setattr(sys, "argv", [module, *options, "--help"])
    with pytest.raises(SystemExit) as exit_:
        importlib.import_module(module).main()
    assert exit_.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [*_MODULES, "quick"])
def test_each_benchmark_has_the_option_json_and_a_make_target(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = f"benchmarks.{name}"
    assert "--json FILE" in _help_of(module, monkeypatch, capsys)
    target = re.match(r"`make (bench[a-z-]*)`", importlib.import_module(module).__doc__ or "")
    assert target is not None
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = rf"^{target[1]}: [^\n]*## [^\n]*\n\t\$\(BIN\)/python -m {re.escape(module)} \$\(BENCH_FLAGS\)$"
    assert re.search(recipe, makefile, re.MULTILINE)
    phony = re.findall(r"^\.PHONY: ((?:.*\\\n)*.*)", makefile, re.MULTILINE)
    assert target[1] in phony[0].split()


@pytest.mark.parametrize("command", quick.BENCHMARKS, ids=lambda command: command[0])
def test_the_quick_benchmarks_know_their_options(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, *options = command
    shown = _help_of(module, monkeypatch, capsys, *options)
    assert [option for option in options if option.startswith("--") and f"{option} " not in shown] == []


def test_quick_collects_the_figures_of_all_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "measured.py").write_text(
        "import sys\nfrom pathlib import Path\nfrom benchmarks.results import Figure, report\n"
        "name, _, file = sys.argv[1:]\nreport([Figure(name, 1.5, 's', 2.0)], Path(file))\n"
    )
    (tmp_path / "failing.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    commands = [("measured", "first"), ("failing",), ("measured", "second")]
    monkeypatch.setattr(quick, "BENCHMARKS", commands)
    monkeypatch.setattr(sys, "argv", ["quick", "--json", str(tmp_path / "all.json")])
    assert quick.main() == 1
    shown = capfd.readouterr()
    assert shown.out == "RESULT first 1.50 s 2 met\nRESULT second 1.50 s 2 met\n"
    assert "failing failed" in shown.err
    assert results.read_figures(tmp_path / "all.json") == [
        Figure("first", 1.5, "s", 2.0),
        Figure("second", 1.5, "s", 2.0),
    ]


def test_figures_beside_those_of_another_commit(tmp_path: Path) -> None:
    program = "import json, sys; json.dump([{'name': 'a_seconds', 'value': %s, 'unit': 's'}], open(sys.argv[2], 'w'))"
    found: dict[str, dict[str, list[float]]] = {}
    for side, value in (("there", 4.0), ("here", 1.0)):
        folder = tmp_path / side / "benchmarks"
        folder.mkdir(parents=True)
        (folder / "tiny.py").write_text(program % value, encoding="utf-8")
        figures = beside.figures_of_run(folder.parent, "tiny")
        found[side] = {str(figure["name"]): [value, value] for figure in figures}
    lines = [figure.line for figure in beside.ratios(found["there"], found["here"], {"a_seconds": "s"})]
    assert lines == [
        "RESULT a_seconds_there 4.00 s - -",
        "RESULT a_seconds_here 1.00 s - -",
        "RESULT a_seconds_beside 0.250 ratio - -",
    ]
