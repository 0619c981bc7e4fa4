"""Redelivered changes are applied once, also without a key or a TSO. Each case is the stream of one table."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.cli.history import history_lines, table_history
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes import cut_rows
from cdc_pipeline.mirrors.changes.copies import find_copies
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, published_entries
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.kills import Killed, Killer, ingested_with_kills
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.truth import differences
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, dataworks, ddl, row, tso, watermark

_TYPES = {"id": "int", "v": "varchar"}
_KEYLESS = "CREATE TABLE {} (id INT, v VARCHAR(20))"
_KEYED = "CREATE TABLE {} (id INT PRIMARY KEY, v VARCHAR(20))"


@dataclass
class Case:
    """The stream of one table, and its mirror after each run."""

    slices: list[list[tuple[str, int]]]
    """For each run, its messages, each with its partition."""
    rows: list[list[tuple[int, str | None]]]
    """The rows of the mirror after each run."""
    duplicates: int = 0
    """How many changes are redeliveries, over all runs."""
    create: str = _KEYLESS
    late: int = 0
    """How many changes are late and known already, over all runs."""
    doubt: bool = False
    """Whether the mirror has a gap, because equal rows may be redeliveries."""


def _add(table: str, step: int, key: str, *, exact: bool = True, ts: int = 5, partition: int = 0) -> tuple[str, int]:
    message = json.loads(row("INSERT", table, step, {"id": key, "v": "a"}, types=_TYPES, key=[], extension=exact))
    return json.dumps({**message, "ts": message["es"] + ts}), partition


def _next_commit(sent: tuple[str, int], partition: int) -> tuple[str, int]:
    """The change in another partition, by the next transaction of the same ms."""
    message = json.loads(sent[0])
    return json.dumps({**message, "_tidb": {"commitTs": message["_tidb"]["commitTs"] + 1}}), partition


def _add_keyed(table: str, step: int, key: str) -> tuple[str, int]:
    return row("INSERT", table, step, {"id": key, "v": "a"}, types=_TYPES, key=["id"]), 0


def _delayed(sent: tuple[str, int], ms: int) -> tuple[str, int]:
    message = json.loads(sent[0])
    return json.dumps({**message, "ts": message["ts"] + ms}), sent[1]


def _delete(table: str, step: int, key: str, *, exact: bool = True) -> tuple[str, int]:
    return row("DELETE", table, step, {"id": key, "v": "a"}, types=_TYPES, key=[], extension=exact), 0


def _update(step: int, old: dict[str, str | None], *, ts: int = 5) -> tuple[str, int]:
    sent = row("UPDATE", "x", step, {"id": "1", "v": "b"}, old=old, types=_TYPES, key=[])
    return _delayed((sent, 0), ts - 5)


def _keyed(kind: str, table: str, step: int, key: str, value: str, *, old: str | None = None) -> tuple[str, int]:
    before = None if old is None else {"id": key, "v": old}
    data = {"id": key, "v": value}
    return row(kind, table, step, data, old=before, types=_TYPES, key=["id"], extension=False), 0


def _canal(
    kind: str, table: str, step: int, key: str, batch: int, *, ms: int = 0, partition: int = 0
) -> tuple[str, int]:
    message = json.loads(canal(kind, table, step, [{"id": key, "v": "a"}], types=_TYPES, batch=batch))
    return json.dumps({**message, "ts": message["ts"] + ms}), partition


def _with_key(slices: list[list[tuple[str, int]]]) -> list[list[tuple[str, int]]]:
    """The messages, which name the key."""
    return [[(json.dumps({**json.loads(text), "pkNames": ["id"]}), at) for text, at in sent] for sent in slices]


def _canal_keyed(kind: str, step: int, key: str, batch: int, *, ms: int = 0) -> tuple[str, int]:
    """A row of another table, with a key."""
    message = json.loads(_canal(kind, "x", step, key, batch, ms=ms)[0])
    return json.dumps({**message, "table": "keyed", "database": "other", "pkNames": ["id"]}), 0


def _canal_update(step: int, old: str, new: str, batch: int, *, ms: int = 0) -> tuple[str, int]:
    images = [{"id": "1", "v": new}], [{"v": old}]
    message = json.loads(canal("UPDATE", "x", step, images[0], old=images[1], types=_TYPES, key=["id"], batch=batch))  # type: ignore[arg-type]
    return json.dumps({**message, "ts": message["ts"] + ms}), 0


def _canal_ddl(sql: str, step: int, batch: int, *, ms: int = 0) -> tuple[str, int]:
    kind = {"CREATE": "CREATE", "DROP": "ERASE", "TRUNCATE": "TRUNCATE"}[sql.split()[0]]
    message = json.loads(canal_ddl(sql, step, table="x", kind=kind))
    return json.dumps({**message, "ts": message["ts"] + ms, "id": batch}), 0


def _dataworks(op: str, table: str, sequence: str, key: int) -> tuple[str, int]:
    image = {"id": key, "v": "a"}
    sides = {"after": image} if op == "INSERT" else {"before": image}
    return dataworks(op, table, int(sequence) - 8, **sides, types={"id": "LONG", "v": "STRING"}, sequence=sequence), 0  # type: ignore[arg-type]


def _watermark(step: int) -> tuple[str, int]:
    return watermark(step), 0


_EXACT_10 = watermark(10, tso(10)), 0
_EXACT_20 = watermark(20, tso(20)), 0
"""A watermark with the TSO of changes."""

# With TSOs and watermarks. All tables of a lake share its slices; the watermarks 10, 20 and 40 end them.
EXACT = {
    "equal_rows_of_one_transaction": Case(
        [[_add("x", 5, "1"), _add("x", 5, "1", ts=6), _watermark(10)], [_watermark(20)], [_watermark(40)]],
        [[(1, "a"), (1, "a")]] * 3,
    ),
    "a_range_is_resent_from_an_earlier_checkpoint": Case(
        [
            # resent from 5 on, after the change at 7
            [_add("x", 5, "1"), _add("x", 5, "1"), _add("x", 7, "2"), _add("x", 5, "1", ts=900)]
            + [_add("x", 5, "1", ts=901), _add("x", 7, "2", ts=902), _add("x", 8, "2", ts=903), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a"), (2, "a"), (2, "a")]] * 3,
        duplicates=3,
    ),
    # with content-compatible since the restart
    "an_update_is_resent_with_its_changed_columns_only": Case(
        [
            [_add("x", 5, "1"), _update(6, {"id": "1", "v": "a"}), _add("x", 5, "1", ts=9000)]
            + [_update(6, {"v": "a"}, ts=8001), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "b")]] * 3,
        duplicates=2,
    ),
    # seed 8668 of ticdc_extension: the dispatcher `ts` spreads the commits of one ms over the partitions
    "equal_rows_of_two_transactions_of_one_ms_in_two_partitions": Case(
        [
            [_add("x", 5, "1"), _next_commit(_add("x", 5, "1"), 1), _watermark(10), (watermark(10), 1)],
            [_watermark(20), (watermark(20), 1)],
            [_watermark(40), (watermark(40), 1)],
        ],
        [[(1, "a"), (1, "a")]] * 3,
    ),
    "a_late_copy_does_not_start_a_delivery_of_other_rows": Case(
        [
            [_add("x", 5, "1"), _watermark(6), _add("x", 8, "1"), _add("x", 8, "1", ts=6), _add("x", 5, "1", ts=3010)]
            + [_add("x", 8, "1", ts=11), _add("x", 8, "1", ts=12), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")] * 5] * 3,
        duplicates=1,
    ),
    "a_row_is_resent_after_the_watermark_of_its_commit": Case(
        [
            [_add("x", 5, "1"), _watermark(6), _add("x", 5, "1", ts=900), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=1,
    ),
    "a_row_is_resent_twice_below_a_watermark": Case(
        [
            [_add("x", 5, "1"), _watermark(6), _add("x", 5, "1", ts=900), _add("x", 5, "1", ts=901), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=2,
    ),
    "a_whole_commit_is_resent_after_the_checkpoint_is_resent": Case(
        [
            [_watermark(3), _add("x", 5, "1"), _add("x", 5, "1"), _watermark(3), _add("x", 5, "1", ts=300)]
            + [_add("x", 5, "1", ts=301), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")] * 4] * 3,
        doubt=True,
    ),
    "a_whole_commit_is_resent_seconds_later": Case(
        [
            [_add("x", 5, "1"), _add("x", 5, "2"), _add("x", 5, "1"), _add("x", 5, "1", ts=4200)]
            + [_add("x", 5, "2", ts=4201), _add("x", 5, "1", ts=4202), _add("x", 7, "1", ts=4203), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a"), (1, "a"), (2, "a")]] * 3,
        duplicates=3,
        doubt=True,
    ),
    "an_incomplete_commit_is_resent_twice": Case(
        [
            [_add("x", 5, "1"), _add("x", 5, "1", ts=4200), _add("x", 5, "2", ts=4201), _add("x", 5, "1", ts=9000)]
            + [_add("x", 5, "2", ts=9001), _add("x", 5, "3", ts=9002), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (2, "a"), (3, "a")]] * 3,
        duplicates=3,
        doubt=True,
    ),
    "equal_rows_on_both_sides_of_a_watermark_that_does_not_advance": Case(
        [
            [_watermark(3), _add("x", 5, "1"), _watermark(3), _add("x", 5, "1", ts=6), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a")]] * 3,
    ),
    "a_single_row_is_resent_after_the_checkpoint_is_resent": Case(
        [
            [_watermark(3), _add("x", 5, "1"), _watermark(3), _add("x", 5, "1", ts=2300), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=1,
        doubt=True,
    ),
    "a_single_equal_row_seconds_later": Case(
        [
            [_add("x", 5, "1"), _add("x", 5, "1", ts=4200), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=1,
        doubt=True,
    ),
    "messages_with_a_key_of_a_keyless_table_seconds_apart": Case(
        [
            [_add_keyed("x", 5, "1"), _delayed(_add_keyed("x", 5, "1"), 4200), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=1,
        doubt=True,
    ),
    "equal_rows_seconds_apart_and_rows_ahead_are_not_resent": Case(
        [
            [_add("x", 5, "1"), _add("ahead1", 7, "9"), _add("x", 5, "1", ts=4200), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=1,
        doubt=True,
    ),
    "equal_rows_seconds_apart_and_rows_ahead_are_resent": Case(
        [
            [_add("x", 5, "1"), _add("ahead2", 7, "9"), _add("x", 5, "1", ts=4200), _add("ahead2", 7, "9", ts=4201)]
            + [_watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=2,
        doubt=True,
    ),
    "a_changefeed_restarts_while_it_resends": Case(
        [
            [_add("ahead3", 5, "9"), *(_add("x", 5, key) for key in "123")]
            + [_add("ahead3", 5, "9", ts=4000), _add("x", 5, "1", ts=4000)]
            + [_add("ahead3", 5, "9", ts=9000), *(_add("x", 5, key, ts=9000) for key in "123"), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (2, "a"), (3, "a")]] * 3,
        duplicates=6,
        doubt=True,
    ),
    "equal_rows_seconds_apart_and_rows_ahead_are_resent_by_a_later_restart": Case(
        [
            [_add("x", 5, "1"), _add("ahead4", 7, "9"), _add("x", 5, "1", ts=4200)]
            + [_add("ahead4", 7, "9", ts=4900), _add("x", 5, "1", ts=7000), _add("x", 5, "1", ts=7001), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a")]] * 3,
        duplicates=3,
        doubt=True,
    ),
    "equal_rows_seconds_apart_and_rows_ahead_are_resent_after_the_watermark": Case(
        [
            [_add("x", 5, "1"), _add("ahead5", 7, "9"), _add("x", 5, "1", ts=4200), _watermark(6)]
            + [_add("ahead5", 7, "9", ts=9000), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=2,
        doubt=True,
    ),
    "a_sink_pauses_within_a_commit_and_sends_other_rows": Case(
        [
            [
                _add("x", 5, "1"),
                _add("x", 5, "2"),
                _add("x", 5, "1", ts=8000),
                _add("x", 5, "3", ts=8001),
                _watermark(10),
            ],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (2, "a"), (3, "a")]] * 3,
        duplicates=1,
        doubt=True,
    ),
    "a_sink_pauses_within_a_commit_and_sends_one_equal_row": Case(
        [
            [
                _add("x", 5, "1"),
                _add("x", 5, "2"),
                _add("x", 5, "1", ts=8000),
                _add("x", 7, "3", ts=8001),
                _watermark(10),
            ],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (2, "a"), (3, "a")]] * 3,
        duplicates=1,
        doubt=True,
    ),
    "a_delete_of_one_of_several_equal_rows_is_resent": Case(
        [
            [_add("x", 5, "1"), _add("x", 5, "1"), _add("x", 5, "1"), _delete("x", 6, "1"), _add("x", 9, "3")]
            + [_delete("x", 6, "1"), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a"), (3, "a")]] * 3,
        duplicates=1,
    ),
    "messages_with_a_key_of_a_keyless_table": Case(
        [
            [
                _add_keyed("x", 5, "1"),
                _add_keyed("x", 7, "2"),
                _add_keyed("x", 5, "1"),
                _add_keyed("x", 7, "2"),
                _watermark(10),
            ],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (2, "a")]] * 3,
        duplicates=2,
    ),
    "new_rows_with_the_tso_of_the_watermark_after_it": Case(
        [
            [_add("x", 5, "1"), _add("x", 10, "2"), _EXACT_10],
            # a copy of the row that was applied, and a new row twice
            [_add("x", 10, "2", ts=900), _add("x", 10, "3", ts=901), _add("x", 10, "3", ts=902), _EXACT_20],
            [_add("x", 10, "3", ts=2900), _add("x", 20, "4"), _watermark(40)],
        ],
        [[(1, "a")], [(1, "a"), (2, "a"), (3, "a")], [(1, "a"), (2, "a"), (3, "a"), (4, "a")]],
        duplicates=2,
        late=1,
    ),
    "a_resent_delete_with_the_tso_of_the_watermark_has_no_effect": Case(
        [
            [_add("x", 5, "1"), _delete("x", 10, "1"), _add("x", 10, "1"), _EXACT_10],
            [_delete("x", 10, "1"), _watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        create=_KEYED,
        duplicates=1,
    ),
    "statements_with_the_tso_of_the_watermark_before_and_after_it": Case(
        [
            [_add("x", 5, "1"), (ddl("ALTER TABLE x RENAME COLUMN v TO w", 10, table="x"), 0), _EXACT_10],
            [(ddl("ALTER TABLE x RENAME COLUMN w TO v", 10, table="x"), 0), _add("x", 15, "2"), _watermark(20)],
            # both again: they are applied already
            [
                (ddl("ALTER TABLE x RENAME COLUMN v TO w", 10, table="x"), 0),
                (ddl("ALTER TABLE x RENAME COLUMN w TO v", 10, table="x"), 0),
                _watermark(40),
            ],
        ],
        [[(1, "a")], [(1, "a"), (2, "a")], [(1, "a"), (2, "a")]],
    ),
    "a_pending_row_is_resent": Case(
        [
            [_watermark(10), _add("x", 15, "1")],
            [_add("x", 15, "1", ts=70), _add("x", 17, "2"), _add("x", 15, "1", ts=900), _watermark(20)],
            [_add("x", 15, "1", ts=990), _watermark(40)],
        ],
        # the first two are adjacent: they cannot be distinguished from two equal rows
        [[], [(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a")]],
        duplicates=1,
        late=1,
    ),
}

# Without watermarks each slice is a cut.
BY_TIME = {
    "ticdc_keyed_a_deleted_row_stays_deleted_while_its_range_is_resent": Case(
        [
            [_keyed("INSERT", "x", 2, "1", "a"), _keyed("DELETE", "x", 9, "1", "a")],
            [_keyed("INSERT", "x", 2, "1", "a")],
            [_keyed("DELETE", "x", 9, "1", "a"), _keyed("INSERT", "x", 12, "2", "b")],
        ],
        [[], [], [(2, "b")]],
        late=2,
        create=_KEYED,
    ),
    "ticdc_keyless_a_range_is_resent_in_the_next_run": Case(
        [
            [_add("x", 2, "1", exact=False), _add("x", 2, "1", exact=False), _add("x", 4, "2", exact=False)],
            [_add("x", 2, "1", exact=False), _add("x", 2, "1", exact=False), _add("x", 4, "2", exact=False)]
            + [_add("x", 6, "1", exact=False)],
            [_delete("x", 8, "1", exact=False)],
        ],
        [[(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a")]],
        late=3,
    ),
    "ticdc_keyless_the_last_commit_is_resent_after_a_restart": Case(
        [
            [_add("x", 2, "1", exact=False), _add("x", 2, "1", exact=False, ts=6)],
            [_add("x", 2, "1", exact=False, ts=2000), _add("x", 2, "1", exact=False, ts=2001)],
            [_delete("x", 8, "1", exact=False)],
        ],
        [[(1, "a"), (1, "a")], [(1, "a"), (1, "a")], [(1, "a")]],
        late=2,
    ),
    "canal_restarts_within_one_second": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "1", 8)],
            [_canal("INSERT", "x", 2, "1", 1, ms=300), _canal("INSERT", "x", 2, "1", 2, ms=301)],
            [_canal("INSERT", "x", 2, "1", 3, ms=400)],
        ],
        [[(1, "a"), (1, "a")], [(1, "a"), (1, "a")], [(1, "a")] * 3],
        duplicates=2,
        doubt=True,  # the last one may be a retry of batch 2: equal content, 99 ms later
    ),
    "canal_a_long_transaction_inserts_the_row_of_an_earlier_one": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 4, "2", 8)],
            [_canal("INSERT", "x", 2, "1", 9, ms=2500), _canal("INSERT", "x", 5, "3", 10)],
            [_canal("DELETE", "x", 6, "1", 11)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (3, "a")], [(1, "a"), (2, "a"), (3, "a")]],
        doubt=True,
    ),
    # nothing follows in the same run that would tell
    "canal_a_long_transaction_inserts_the_row_of_an_earlier_one_last": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 4, "2", 8)],
            [_canal("INSERT", "x", 2, "1", 9, ms=2500)],
            [_canal("INSERT", "x", 6, "3", 10)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (3, "a")]],
        doubt=True,
    ),
    "canal_an_update_waits_for_a_lock_and_repeats_an_earlier_one": Case(
        [
            [_canal("INSERT", "x", 1, "1", 6), _canal_update(2, "a", "b", 7), _canal_update(4, "b", "a", 8)],
            [_canal_update(2, "a", "b", 9, ms=2500)],
            [_canal("INSERT", "x", 6, "2", 10)],
        ],
        [[(1, "a")], [(1, "b")], [(1, "b"), (2, "a")]],
        create=_KEYED,
    ),
    "canal_retries_batches_with_new_numbers": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 4, "2", 8), _canal("INSERT", "x", 4, "2", 8)],
            [_canal("INSERT", "x", 2, "1", 9, ms=2500), _canal("INSERT", "x", 4, "2", 10, ms=600)]
            + [_canal("INSERT", "x", 4, "2", 10, ms=600), _canal("INSERT", "x", 5, "3", 10)],
            [_canal("DELETE", "x", 6, "1", 11)],
        ],
        [[(1, "a"), (2, "a"), (2, "a")], [(1, "a")] * 2 + [(2, "a")] * 4 + [(3, "a")]]
        + [[(1, "a")] + [(2, "a")] * 4 + [(3, "a")]],
        doubt=True,
    ),
    "canal_restarts_and_the_numbers_of_one_partition_increase": Case(
        [
            # this partition had only small numbers, the other one large ones
            [_canal("INSERT", "x", 2, "1", 1), _canal("INSERT", "x", 3, "2", 8, partition=1)],
            [
                _canal("INSERT", "x", 2, "1", 2, ms=9000),
                _canal("INSERT", "x", 3, "2", 2, ms=8000, partition=1),
                _canal("INSERT", "x", 4, "3", 3, ms=8000),
            ],
            [_canal("DELETE", "x", 30, "1", 4)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (2, "a"), (3, "a")], [(2, "a"), (3, "a")]],
        duplicates=2,
    ),
    "canal_restarts_and_each_partition_shows_it_at_another_time": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "1", 7), _canal("DELETE", "x", 2, "1", 8, ms=1)]
            + [_canal("INSERT", "x", 2, "9", 9, ms=2, partition=1)],
            # the first message of the other partition arrives later
            [_canal("INSERT", "x", 2, "1", 1, ms=900), _canal("INSERT", "x", 2, "1", 1, ms=900)]
            + [_canal("DELETE", "x", 2, "1", 2, ms=901), _canal("INSERT", "x", 2, "9", 3, ms=902, partition=1)]
            + [_canal("INSERT", "x", 2, "1", 4, ms=903), _canal("DELETE", "x", 2, "1", 5, ms=904)]
            + [_canal("INSERT", "x", 2, "1", 6, ms=905)],
            [],
        ],
        [[(1, "a"), (9, "a")], [(1, "a"), (1, "a"), (9, "a")], [(1, "a"), (1, "a"), (9, "a")]],
        duplicates=4,
    ),
    "canal_restarts_with_a_statement_before_any_row": Case(
        [
            [_canal_ddl("TRUNCATE TABLE x", 2, 1), _canal("INSERT", "x", 2, "1", 2, ms=1)],
            [_canal_ddl("TRUNCATE TABLE x", 2, 1, ms=2000), _canal("INSERT", "x", 2, "1", 3, ms=2001)]
            + [_canal("INSERT", "x", 2, "2", 4, ms=2002)],
            [_canal("INSERT", "x", 8, "2", 9)],
        ],
        [[(1, "a")], [(1, "a"), (2, "a")], [(1, "a"), (2, "a"), (2, "a")]],
        duplicates=1,
    ),
    "canal_restarts_in_its_first_batch": Case(
        [
            [_canal_ddl("TRUNCATE TABLE x", 2, 1), _canal("INSERT", "x", 2, "1", 1), _canal("INSERT", "x", 2, "2", 1)],
            [_canal_ddl("TRUNCATE TABLE x", 2, 1, ms=2000), _canal("INSERT", "x", 2, "1", 1, ms=2001)]
            + [_canal("INSERT", "x", 2, "2", 1, ms=2001), _canal("INSERT", "x", 2, "3", 1, ms=2002)],
            [_canal("INSERT", "x", 8, "2", 9)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (2, "a"), (3, "a")], [(1, "a"), (2, "a"), (2, "a"), (3, "a")]],
        duplicates=2,
        doubt=True,
    ),
    "canal_es_steps_back_inside_a_batch": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7, ms=2000), _canal("INSERT", "x", 4, "2", 7)],
            [_canal("INSERT", "x", 2, "1", 7, ms=2001), _canal("INSERT", "x", 4, "2", 7, ms=2)],
            [_canal("DELETE", "x", 6, "1", 8)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (2, "a")], [(1, "a"), (2, "a"), (2, "a")]],
        doubt=True,
    ),
    "canal_retries_a_batch_with_a_key_in_it": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "1", 7), _canal_keyed("INSERT", 2, "1", 7)],
            [_canal("INSERT", "x", 2, "1", 8, ms=100), _canal("INSERT", "x", 2, "1", 8, ms=101)]
            + [_canal_keyed("INSERT", 2, "1", 8, ms=102), _canal("INSERT", "x", 2, "1", 8, ms=103)],
            [_canal("DELETE", "x", 6, "1", 9)],
        ],
        [[(1, "a")] * 2, [(1, "a")] * 5, [(1, "a")] * 4],
        doubt=True,
    ),
    "canal_retries_a_batch_that_failed_in_turn": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "2", 7), _canal_keyed("INSERT", 2, "2", 7)],
            [_canal("INSERT", "x", 2, "1", 8, ms=100)],
            [_canal("INSERT", "x", 2, "1", 9, ms=200), _canal("INSERT", "x", 2, "2", 9, ms=201)]
            + [_canal_keyed("INSERT", 2, "2", 9, ms=202), _canal("INSERT", "x", 2, "3", 9, ms=203)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a")], [(1, "a")] * 3 + [(2, "a")] * 2 + [(3, "a")]],
        doubt=True,
    ),
    "canal_retries_a_batch_or_the_same_happened_twice": Case(
        [
            [_canal("INSERT", "x", 2, "1", 8), _canal("INSERT", "x", 2, "2", 8)],
            [_canal("INSERT", "x", 2, "1", 9, ms=100), _canal("INSERT", "x", 2, "2", 9, ms=100)],
            [],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (2, "a")]],
        doubt=True,
    ),
    "canal_retries_a_batch_after_a_restart": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal_update(4, "a", "b", 8), _canal_ddl("TRUNCATE TABLE x", 5, 9)]
            + [_canal("INSERT", "x", 6, "2", 10), _canal("INSERT", "x", 7, "3", 11)],
            [_canal("INSERT", "x", 2, "1", 1, ms=9000), _canal("INSERT", "x", 2, "1", 2, ms=9110)]
            + [_canal_update(4, "a", "b", 3, ms=9000), _canal_ddl("TRUNCATE TABLE x", 5, 4, ms=9000)]
            + [_canal_ddl("TRUNCATE TABLE x", 5, 5, ms=9110), _canal("INSERT", "x", 6, "2", 6, ms=9000)],
            [_canal("INSERT", "x", 7, "3", 7, ms=9000), _canal("DELETE", "x", 30, "2", 8)],
        ],
        [[(2, "a"), (3, "a")], [(2, "a"), (3, "a")], [(3, "a")]],
        duplicates=5,
        create=_KEYED,
    ),
    "canal_retries_the_last_batch_after_a_restart": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal_update(2, "a", "b", 7, ms=1)],
            [_canal("INSERT", "x", 2, "1", 1, ms=9000), _canal("INSERT", "x", 2, "1", 2, ms=9110)]
            + [_canal_update(2, "a", "b", 2, ms=9111)],
            [_canal("INSERT", "x", 30, "2", 3)],
        ],
        # the second INSERT may be new: the first delivery has ended in this second
        [[(1, "b")], [(1, "a")], [(1, "a"), (2, "a")]],
        duplicates=2,
        create=_KEYED,
        doubt=True,
    ),
    # `mysqlbinlog | mysql` repeats changes with their former `es`; capture `world-canal-point-in-time-recovery`
    "canal_sends_a_binlog_that_is_played_again": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("DELETE", "x", 9, "1", 8)],
            [_canal("INSERT", "x", 2, "1", 9, ms=20000)],
            [_canal("INSERT", "x", 40, "2", 10)],
        ],
        [[], [(1, "a")], [(1, "a"), (2, "a")]],
        create=_KEYED,
        doubt=True,
    ),
    "canal_restarts_before_a_binlog_is_played_again": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("DELETE", "x", 9, "1", 8)],
            [_canal("DELETE", "x", 9, "1", 1, ms=5000), _canal("INSERT", "x", 2, "1", 2, ms=20000)],
            [_canal("INSERT", "x", 40, "2", 3)],
        ],
        [[], [(1, "a")], [(1, "a"), (2, "a")]],
        duplicates=1,
        create=_KEYED,
        doubt=True,
    ),
    "canal_restarts_before_and_after_a_binlog_is_played_again": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("DELETE", "x", 9, "1", 8)],
            [_canal("DELETE", "x", 9, "1", 1, ms=5000), _canal("INSERT", "x", 2, "1", 2, ms=20000)],
            [_canal("DELETE", "x", 9, "1", 1, ms=25000), _canal("INSERT", "x", 2, "1", 2, ms=32001)]
            + [_canal("INSERT", "x", 40, "2", 3)],
        ],
        [[], [(1, "a")], [(1, "a"), (2, "a")]],
        duplicates=3,
        doubt=True,
    ),
    # seed 4087 of canal_hashed: the second INSERT is new, in the same second, and is played again
    "canal_restarts_between_equal_rows_of_a_binlog_that_is_played_again": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7)],
            [_canal("INSERT", "x", 2, "1", 1, ms=9000), _canal("DELETE", "x", 2, "1", 2, ms=9001)]
            + [_canal("INSERT", "x", 2, "1", 3, ms=9002), _canal("DELETE", "x", 30, "1", 4)]
            + [_canal("INSERT", "x", 2, "1", 6, ms=60000)],
            [_canal("INSERT", "x", 80, "2", 7)],
        ],
        [[(1, "a")], [(1, "a")], [(1, "a"), (2, "a")]],
        duplicates=1,
        create=_KEYED,
        doubt=True,
    ),
    "canal_restarts_before_equal_rows_of_a_binlog_are_played_again": Case(
        [
            [
                _canal("INSERT", "x", 2, "1", 7),
                _canal("DELETE", "x", 2, "1", 8, ms=1),
                _canal("INSERT", "x", 2, "1", 9, ms=2),
            ],
            [_canal("DELETE", "x", 9, "1", 1, ms=5000), _canal("INSERT", "x", 2, "1", 2, ms=20000)]
            + [_canal("DELETE", "x", 2, "1", 3, ms=20001), _canal("INSERT", "x", 2, "1", 4, ms=20002)],
            [_canal("INSERT", "x", 40, "2", 5)],
        ],
        [[(1, "a")], [(1, "a")], [(1, "a"), (2, "a")]],
        create=_KEYED,
        doubt=True,
    ),
    # seed 5203 of canal_hashed: the first new message has the number of the last one before the restart, by chance
    "canal_resends_with_its_former_clock_beside_a_binlog_that_is_played_again": Case(
        [
            [_canal("INSERT", "x", 2, "1", 5, partition=1), _canal("DELETE", "x", 6, "1", 6, partition=1)]
            + [_canal("INSERT", "x", 8, "4", 7), _canal("INSERT", "x", 10, "2", 8)],
            [_canal("INSERT", "x", 8, "4", 1), _canal("INSERT", "x", 10, "2", 2), _canal("INSERT", "x", 12, "3", 8)]
            + [_canal("INSERT", "x", 2, "1", 9, ms=20000, partition=1)],
            [_canal("INSERT", "x", 40, "5", 10), _canal("INSERT", "x", 40, "6", 10, partition=1)],
        ],
        [
            [(2, "a"), (4, "a")],
            [(1, "a"), (2, "a"), (3, "a"), (4, "a")],
            [(1, "a"), (2, "a"), (3, "a"), (4, "a"), (5, "a"), (6, "a")],
        ],
        late=2,
        create=_KEYED,
        doubt=True,
    ),
    # seed 5752 of canal_hashed: the second restart resends the row of the first one, and nothing older in its partition
    "canal_restarts_twice_with_its_former_clock_before_a_binlog_is_played_again": Case(
        _with_key(
            [
                [_canal("INSERT", "x", 2, "1", 5, partition=1), _canal("INSERT", "x", 4, "2", 6)]
                + [_canal("DELETE", "x", 6, "1", 7, partition=1)]
                + [_canal("INSERT", "x", 2, "1", 1, partition=1), _canal("INSERT", "x", 2, "1", 4, partition=1)]
                + [_canal("INSERT", "x", 4, "2", 5), _canal("DELETE", "x", 6, "1", 6, partition=1)]
                + [_canal("INSERT", "x", 8, "3", 7), _canal("INSERT", "x", 2, "1", 8, ms=20000, partition=1)],
                [_canal("INSERT", "x", 40, "4", 10), _canal("INSERT", "x", 40, "5", 10, partition=1)],
                [],
            ]
        ),
        [[(1, "a"), (2, "a"), (3, "a")], *[[(1, "a"), (2, "a"), (3, "a"), (4, "a"), (5, "a")]] * 2],
        duplicates=4,
        create=_KEYED,
    ),
    # seed 6365 of canal_hashed
    "canal_resends_only_the_newest_rows_with_its_former_clock": Case(
        _with_key(
            [
                [_canal("INSERT", "x", 2, "1", 5, partition=1), _canal("DELETE", "x", 3, "1", 6, partition=1)]
                + [_canal("INSERT", "x", 8, "4", 7, partition=2), _canal("INSERT", "x", 10, "2", 8)]
                + [_canal("INSERT", "x", 8, "4", 1, partition=2), _canal("INSERT", "x", 10, "2", 2)]
                + [_canal("INSERT", "x", 12, "3", 3), _canal("INSERT", "x", 2, "1", 4, ms=20000, partition=1)],
                [_canal("INSERT", "x", 40, "5", 10), _canal("INSERT", "x", 40, "6", 10, partition=1)],
                [],
            ]
        ),
        [
            [(1, "a"), (2, "a"), (3, "a"), (4, "a")],
            *[[(1, "a"), (2, "a"), (3, "a"), (4, "a"), (5, "a"), (6, "a")]] * 2,
        ],
        duplicates=2,
        create=_KEYED,
    ),
    # seed 4773 of canal_one_partition: the last resent row has a greater batch number than the first time
    "canal_resends_with_its_former_clock_in_more_batches": Case(
        _with_key(
            [
                [_canal("INSERT", "x", 2, "2", 2), _canal("INSERT", "x", 2, "1", 3, ms=10)]
                + [_canal("INSERT", "x", 2, "2", 1), _canal("INSERT", "x", 2, "1", 4, ms=10)]
                + [_canal("DELETE", "x", 2, "1", 4, ms=1100), _canal("INSERT", "x", 2, "1", 5, ms=1101)],
                [_canal("INSERT", "x", 40, "3", 10)],
                [],
            ]
        ),
        [[(1, "a"), (2, "a")], *[[(1, "a"), (2, "a"), (3, "a")]] * 2],
        duplicates=2,
        create=_KEYED,
    ),
    # seed 5820 of canal_one_partition: a resent stretch ends before the first new row of the table
    "canal_inserts_a_key_again_within_the_second_of_its_restart": Case(
        _with_key(
            [
                [_canal("INSERT", "x", 2, "1", 7), _canal("DELETE", "x", 2, "1", 8), _canal("INSERT", "x", 2, "2", 9)],
                [_canal("INSERT", "x", 2, "2", 1, ms=2000), _canal("INSERT", "x", 2, "3", 2, ms=2001)]
                + [_canal("INSERT", "x", 2, "1", 3, ms=2002)],
                [_canal("INSERT", "x", 40, "4", 4)],
            ]
        ),
        [[(2, "a")], [(1, "a"), (2, "a"), (3, "a")], [(1, "a"), (2, "a"), (3, "a"), (4, "a")]],
        duplicates=1,
        create=_KEYED,
    ),
    # the same without a key: a copy, by its count, or not
    "canal_inserts_an_equal_row_within_the_second_of_its_restart": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "2", 9)],
            [_canal("INSERT", "x", 2, "2", 1, ms=2000), _canal("INSERT", "x", 2, "3", 2, ms=2001)]
            + [_canal("INSERT", "x", 2, "1", 3, ms=2002)],
            [_canal("INSERT", "x", 40, "4", 4)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (2, "a"), (3, "a")], [(1, "a"), (2, "a"), (3, "a"), (4, "a")]],
        duplicates=2,
        doubt=True,
    ),
    "canal_restarts_before_statements_are_played_again": Case(
        [
            [_canal_ddl("DROP TABLE x", 3, 6), _canal_ddl(_KEYLESS.format("x"), 4, 7)]
            + [_canal("INSERT", "x", 5, "1", 8)],
            [_canal_ddl("DROP TABLE x", 9, 9), _canal_ddl("DROP TABLE x", 9, 1, ms=5000)]
            + [_canal_ddl(_KEYLESS.format("x"), 4, 2, ms=20000), _canal("INSERT", "x", 5, "1", 3, ms=20000)],
            [_canal("INSERT", "x", 40, "2", 4)],
        ],
        [[(1, "a")], [(1, "a")], [(1, "a"), (2, "a")]],
        doubt=True,
    ),
    "canal_retries_a_batch_with_a_statement_after_a_restart": Case(
        [
            [_canal_ddl("TRUNCATE TABLE x", 2, 7), _canal("INSERT", "x", 4, "1", 7), _canal("INSERT", "x", 6, "2", 8)],
            [_canal_ddl("TRUNCATE TABLE x", 2, 1, ms=9000), _canal("INSERT", "x", 4, "1", 1, ms=7001)]
            + [_canal_ddl("TRUNCATE TABLE x", 2, 2, ms=9110), _canal("INSERT", "x", 4, "1", 2, ms=7111)]
            + [_canal("INSERT", "x", 6, "2", 3, ms=5112)],
            [],
        ],
        [[(1, "a"), (2, "a")]] * 3,
        duplicates=3,
    ),
    "canal_inserts_a_key_again_that_the_batch_deleted": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal_keyed("INSERT", 2, "3", 7), _canal_keyed("DELETE", 2, "3", 7)],
            [_canal("INSERT", "x", 2, "1", 8, ms=10), _canal_keyed("INSERT", 2, "3", 8, ms=11)]
            + [_canal_keyed("DELETE", 2, "3", 8, ms=12)],
            [],
        ],
        # no retry: Canal waits 100 ms, these are 10 ms apart
        [[(1, "a")], [(1, "a"), (1, "a")], [(1, "a"), (1, "a")]],
    ),
    "canal_truncates_the_table_in_a_batch_equal_to_the_one_before": Case(
        [
            [_canal_ddl("TRUNCATE TABLE x", 2, 7), _canal("INSERT", "x", 2, "1", 7), _canal_keyed("INSERT", 2, "5", 7)],
            [_canal_ddl("TRUNCATE TABLE x", 2, 8, ms=100), _canal("INSERT", "x", 2, "1", 8, ms=101)]
            + [_canal_keyed("INSERT", 2, "5", 8, ms=102)],
            [_canal("INSERT", "x", 2, "1", 9, ms=103)],
        ],
        [[(1, "a")], [(1, "a")], [(1, "a"), (1, "a")]],
        doubt=True,
    ),
    "canal_drops_a_table_twice_within_one_second_and_restarts": Case(
        [
            [_canal_ddl("DROP TABLE x", 2, 3), _canal_ddl(f"{_KEYLESS.format('x')}", 2, 4)]
            + [_canal("INSERT", "x", 2, "1", 5), _canal_ddl("DROP TABLE x", 2, 6)]
            + [_canal_ddl(f"{_KEYLESS.format('x')}", 2, 7), _canal("INSERT", "x", 2, "2", 8)],
            [_canal_ddl("DROP TABLE x", 2, 1, ms=2000), _canal_ddl(f"{_KEYLESS.format('x')}", 2, 1, ms=2001)]
            + [_canal("INSERT", "x", 2, "1", 1, ms=2002), _canal_ddl("DROP TABLE x", 2, 2, ms=2003)]
            + [_canal_ddl(f"{_KEYLESS.format('x')}", 2, 2, ms=2004), _canal("INSERT", "x", 2, "2", 2, ms=2005)],
            [_canal("INSERT", "x", 8, "2", 9)],
        ],
        [[(2, "a")], [(2, "a")], [(2, "a"), (2, "a")]],
        duplicates=2,
    ),
    "canal_inserts_and_deletes_the_same_row_within_one_second": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("DELETE", "x", 2, "1", 7, ms=1)],
            [_canal("INSERT", "x", 2, "1", 8, ms=2)],
            [_canal("DELETE", "x", 3, "1", 9), _canal("INSERT", "x", 3, "1", 9, ms=1)],
        ],
        [[], [(1, "a")], [(1, "a")]],
        create=_KEYED,
    ),
    "canal_resends_with_its_former_clock": Case(
        [
            [
                _canal("INSERT", "x", 2, "1", 8),
                _canal("INSERT", "x", 2, "1", 9, ms=50),
                _canal("INSERT", "x", 4, "2", 10),
            ],
            # for now the stream ends within the resent stretch
            [_canal("INSERT", "x", 2, "1", 1), _canal("INSERT", "x", 2, "1", 2, ms=50)],
            # the second of the equal rows is new
            [
                _canal("INSERT", "x", 4, "2", 3),
                _canal("INSERT", "x", 4, "2", 4, ms=900),
                _canal("INSERT", "x", 6, "3", 5),
            ],
        ],
        [
            [(1, "a"), (1, "a"), (2, "a")],
            [(1, "a"), (1, "a"), (2, "a")],
            [(1, "a"), (1, "a"), (2, "a"), (2, "a"), (3, "a")],
        ],
        late=3,
    ),
    "canal_resends_statements_with_its_former_clock": Case(
        [
            [_canal_ddl("DROP TABLE x", 2, 8), _canal_ddl(_KEYLESS.format("x"), 2, 9, ms=1)]
            + [_canal("INSERT", "x", 2, "1", 10, ms=2), _canal("INSERT", "x", 9, "2", 11)],
            [_canal_ddl("DROP TABLE x", 2, 1), _canal_ddl(_KEYLESS.format("x"), 2, 1, ms=1)]
            + [_canal("INSERT", "x", 2, "1", 1, ms=2)],
            # both happen once more
            [_canal_ddl("DROP TABLE x", 9, 2, ms=500), _canal_ddl(_KEYLESS.format("x"), 9, 2, ms=501)]
            + [_canal("INSERT", "x", 9, "3", 2, ms=502)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (2, "a")], [(3, "a")]],
        late=1,
    ),
    "canal_truncates_a_table_again_after_it_has_resent_the_first_time": Case(
        [
            [_canal("INSERT", "x", 2, "1", 8), _canal_ddl("TRUNCATE TABLE x", 2, 9, ms=1)]
            + [_canal("INSERT", "x", 2, "2", 10, ms=2)],
            [_canal("INSERT", "x", 2, "1", 1), _canal_ddl("TRUNCATE TABLE x", 2, 1, ms=1)]
            + [_canal("INSERT", "x", 2, "2", 1, ms=2)],
            [_canal_ddl("TRUNCATE TABLE x", 2, 2, ms=700), _canal("INSERT", "x", 2, "3", 2, ms=701)],
        ],
        [[(2, "a")], [(2, "a")], [(3, "a")]],
        late=2,
    ),
    "canal_without_numbers_equal_changes_are_changes": Case(
        [
            [_canal("INSERT", "x", 2, "1", 0), _canal("INSERT", "x", 2, "1", 0, ms=3)],
            [_canal("INSERT", "x", 2, "1", 0, ms=1700)],
            [_canal("DELETE", "x", 3, "1", 0, ms=1000)],
        ],
        [[(1, "a"), (1, "a")], [(1, "a"), (1, "a"), (1, "a")], [(1, "a"), (1, "a")]],
    ),
    "canal_without_numbers_resends_with_its_former_clock": Case(
        [
            [_canal("INSERT", "x", 2, "1", 0), _canal("DELETE", "x", 2, "1", 0, ms=1)],
            [_canal("INSERT", "x", 2, "1", 0)],
            [],
        ],
        [[], [], []],
        create=_KEYED,
        late=1,
    ),
    "canal_without_numbers_goes_on_within_the_second_that_it_has_resent": Case(
        [
            [_canal("INSERT", "x", 2, "2", 0), _canal("INSERT", "x", 3, "1", 0)],
            [_canal("INSERT", "x", 2, "2", 0), _canal("INSERT", "x", 3, "1", 0)],
            # new, as the stream is newer than all before
            [_canal("INSERT", "x", 3, "1", 0, ms=900)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a")]],
        late=2,
    ),
    "canal_without_numbers_a_long_transaction_between_equal_changes": Case(
        [
            [_canal("INSERT", "x", 4, "1", 0), _canal("INSERT", "x", 3, "2", 0, ms=1003)]
            + [_canal("INSERT", "x", 4, "1", 0, ms=4)],
            [_canal("DELETE", "x", 6, "2", 0)],
            [],
        ],
        [[(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a")], [(1, "a"), (1, "a")]],
    ),
    # perhaps a batch that was sent twice
    "canal_without_numbers_a_long_transaction_after_a_wait": Case(
        [
            [_canal("INSERT", "x", 4, "1", 0), _canal("INSERT", "x", 3, "2", 0, ms=1100)]
            + [_canal("INSERT", "x", 4, "1", 0, ms=101)],
            [_canal("DELETE", "x", 6, "2", 0)],
            [],
        ],
        [[(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a")], [(1, "a"), (1, "a")]],
        doubt=True,
    ),
    "canal_without_numbers_resends_rows_and_a_statement": Case(
        [
            [_canal("INSERT", "x", 2, "1", 0), _canal_ddl("TRUNCATE TABLE x", 3, 0)]
            + [_canal("INSERT", "x", 4, "2", 0), _canal("INSERT", "x", 5, "3", 0)],
            [_canal("INSERT", "x", 2, "1", 0, ms=9000), _canal_ddl("TRUNCATE TABLE x", 3, 0, ms=8001)]
            + [_canal("INSERT", "x", 4, "2", 0, ms=7002), _canal("INSERT", "x", 5, "3", 0, ms=6003)]
            + [_canal("INSERT", "x", 12, "4", 0)],
            [],
        ],
        [[(2, "a"), (3, "a")], [(2, "a"), (3, "a"), (4, "a")], [(2, "a"), (3, "a"), (4, "a")]],
        duplicates=3,
        doubt=True,
    ),
    "dataworks_identifies_a_copy_by_its_number": Case(
        [
            [_dataworks("INSERT", "x", "11", 1), _dataworks("INSERT", "x", "12", 1)],
            [_dataworks("INSERT", "x", "12", 1), _dataworks("INSERT", "x", "13", 2)],
            [_dataworks("DELETE", "x", "14", 1), _dataworks("DELETE", "x", "14", 1)],
        ],
        [[(1, "a"), (1, "a")], [(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (2, "a")]],
        duplicates=1,
        late=1,
        create="",
    ),
}


# What arrives after the end of a cut that it belongs to. `rows`: those of the mirror after a rebuild.
LATE = {
    "ticdc_keyed_a_late_new_change_undoes_nothing": Case(
        [
            [_keyed("INSERT", "x", 2, "1", "a"), _keyed("UPDATE", "x", 8, "1", "c", old="b")],
            [_keyed("UPDATE", "x", 5, "1", "b", old="a")],
            [_keyed("DELETE", "x", 9, "1", "c")],
        ],
        [[(1, "c")], [(1, "c")], []],
        create=_KEYED,
    ),
    "ticdc_the_rest_of_a_commit_of_equal_rows_arrives_in_the_next_run": Case(
        [
            [_add("x", 2, "1", exact=False)],
            [_add("x", 2, "1", exact=False, ts=6), _add("x", 2, "1", exact=False, ts=7)],
            [_delete("x", 9, "1", exact=False)],
        ],
        [[(1, "a")], [(1, "a")], [(1, "a"), (1, "a")]],
    ),
    "canal_the_rest_of_a_batch_of_equal_rows_arrives_in_the_next_run": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7)],
            [_canal("INSERT", "x", 2, "1", 7)],
            [_canal("DELETE", "x", 9, "1", 8)],
        ],
        [[(1, "a")], [(1, "a")], [(1, "a")]],
    ),
    # seed 5752 of canal_hashed
    "canal_a_partition_of_a_binlog_that_is_played_again_is_read_later_than_another": Case(
        _with_key(
            [
                [_canal("INSERT", "x", 2, "1", 5, partition=1), _canal("DELETE", "x", 6, "1", 6, partition=1)]
                + [_canal("INSERT", "x", 2, "2", 8, ms=20000)],
                [_canal("INSERT", "x", 2, "1", 8, ms=20000, partition=1)],
                [_canal("INSERT", "x", 40, "3", 9)],
            ]
        ),
        [[(2, "a")], [(2, "a")], [(1, "a"), (2, "a"), (3, "a")]],
        create=_KEYED,
    ),
    "canal_without_numbers_a_partition_is_read_later_than_another": Case(
        [
            [_canal("INSERT", "x", 2, "1", 0), _canal("INSERT", "x", 2, "2", 0, ms=5, partition=1)],
            [_canal("INSERT", "x", 2, "1", 0, ms=3)],
            [_canal("DELETE", "x", 9, "2", 0)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (2, "a")], [(1, "a"), (1, "a")]],
    ),
    "ticdc_a_create_arrives_after_the_rows_of_its_table": Case(
        [
            [_add("x", 2, "1", exact=False), _add("x", 4, "1", exact=False), _add("x", 2, "1", exact=False)],
            [
                (ddl(_KEYED.format("x"), 1, table="x", kind="CREATE", extension=False), 1),
                _add("x", 6, "2", exact=False),
            ],
            [_delete("x", 8, "1", exact=False)],
        ],
        # two rows without a definition or a key in the messages; one row with it
        [[(1, "a"), (1, "a")], [(1, "a"), (2, "a")], [(2, "a")]],
        duplicates=1,
        create="",
    ),
    "ticdc_a_row_from_before_a_truncate_arrives_after_it": Case(
        [
            [_add("x", 2, "1", exact=False), (ddl("TRUNCATE TABLE x", 7, table="x", extension=False), 0)],
            [_add("x", 5, "2", exact=False, partition=1)],
            [_add("x", 9, "3", exact=False)],
        ],
        [[], [], [(3, "a")]],
    ),
    "ticdc_a_truncate_arrives_after_later_rows": Case(
        [
            [_add("x", 2, "1", exact=False, partition=1)],
            [_add("x", 9, "2", exact=False, partition=1), _add("x", 9, "2", exact=False, partition=1)],
            [(ddl("TRUNCATE TABLE x", 5, table="x", extension=False), 0)],
        ],
        [[(1, "a")], [(1, "a"), (2, "a"), (2, "a")], [(2, "a"), (2, "a")]],
    ),
    "ticdc_a_table_is_recreated_after_its_new_rows_arrived": Case(
        [
            [_add("x", 2, "1", exact=False, partition=1)],
            [_add("x", 19, "4", exact=False, partition=1)],
            [
                (ddl("DROP TABLE x", 15, table="x", extension=False), 0),
                (ddl(_KEYLESS.format("x"), 16, table="x", kind="CREATE", extension=False), 0),
                (ddl("TRUNCATE TABLE x", 18, table="x", extension=False), 0),
            ],
        ],
        [[(1, "a")], [(1, "a"), (4, "a")], [(4, "a")]],
    ),
}


@dataclass
class Runs:
    """The runs of a group of cases."""

    paths: LakePaths
    reports: list[CutReport]
    rows: dict[str, list[list[tuple[int, str | None]]]]
    """Case → the rows of its mirror after each run."""
    doubtful: set[str] = field(default_factory=set)
    """The cases whose mirror has a gap for possible copies."""


def _ingest_cases(spark: SparkSession, folder: Path, cases: dict[str, Case], *, exact: bool) -> Runs:
    """Ingests all cases into one lake, each with its own topic and table (`x` in the messages)."""
    runs = Runs(LakePaths(str(folder / "lake"), "shop"), [], {name: [] for name in cases})
    topics = {name: Topic(name) for name in cases}
    # names of cases are too long for tables
    tables = {name: f"t{place}" for place, name in enumerate(cases)}
    for name, case in cases.items():
        if case.create:
            statement = case.create.format(tables[name])
            message = ddl(statement, 1, table=tables[name], kind="CREATE", extension=exact)
            topics[name].send(
                canal_ddl(statement, 1, table=tables[name], kind="CREATE") if name.startswith("canal") else message
            )
    for number in range(3):
        for name, case in cases.items():
            for payload, partition in case.slices[number]:
                topics[name].send(
                    re.sub(r'(TABLE |"table(?:Name)?": ")x\b', rf"\g<1>{tables[name]}", payload), partition
                )
            topics[name].write(folder / "captures", f"{number}-{name}.jsonl")
        runs.reports.append(ingest(spark, runs.paths, folder / "captures"))
        for name in cases:
            mirror = spark.read.format("delta").load(runs.paths.mirror(TableName("db", tables[name])))
            rows = [found.asDict() for found in mirror.collect()]
            runs.rows[name].append(sorted((found["id"], found.get("v")) for found in rows))
    entries = {
        entry.name.table: entry for entry in published_entries(published_cut(Lake(spark, runs.paths)), runs.paths)
    }
    runs.doubtful = {
        name for name, table in tables.items() if any("do not show which" in gap for gap in entries[table].gaps)
    }
    return runs


# These are in `make test`, with their own lake.
_IN_CORE = (
    "equal_rows_of_one_transaction",
    "a_range_is_resent_from_an_earlier_checkpoint",
    "a_whole_commit_is_resent_after_the_checkpoint_is_resent",
    "a_resent_delete_with_the_tso_of_the_watermark_has_no_effect",
    "statements_with_the_tso_of_the_watermark_before_and_after_it",
)
CORE = {name: EXACT[name] for name in _IN_CORE}
OTHERS = {name: case for name, case in EXACT.items() if name not in CORE}


# The lake takes minutes to build: its tests are a scope of their own (`support/shards.py`).
_IN_BY_TIME = pytest.mark.xdist_group("by_time")


@pytest.fixture(scope="module")
def core(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return _ingest_cases(spark, tmp_path_factory.mktemp("core"), CORE, exact=True)


@pytest.fixture(scope="module")
def exact(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return _ingest_cases(spark, tmp_path_factory.mktemp("exact"), OTHERS, exact=True)


@pytest.fixture(scope="module")
def by_time(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return _ingest_cases(spark, tmp_path_factory.mktemp("by_time"), BY_TIME, exact=False)


@_IN_BY_TIME
def test_a_rebuild_applies_what_arrived_late(spark: SparkSession, tmp_path: Path) -> None:
    runs = _ingest_cases(spark, tmp_path, LATE, exact=False)
    lake = Lake(spark, runs.paths)

    def late_tables() -> set[str]:
        entries = published_entries(published_cut(lake), runs.paths)
        return {entry.name.table for entry in entries if any("arrived after the mirror" in gap for gap in entry.gaps)}

    tables = [f"t{place}" for place in range(len(LATE))]
    assert late_tables() == set(tables)
    assert lake_balance(lake).is_balanced
    Rebuilder(CutMaker(lake, "rebuild", "UTC", 2, lambda _: None)).rebuild()
    assert late_tables() == set()
    for table, case in zip(tables, LATE.values(), strict=True):
        rows = spark.read.format("delta").load(runs.paths.mirror(TableName("db", table))).collect()
        assert sorted((row["id"], row["v"]) for row in rows) == case.rows[-1], table


@pytest.mark.core(4)
@pytest.mark.parametrize("name", CORE)
def test_first_with_watermarks(core: Runs, name: str) -> None:
    assert core.rows[name] == CORE[name].rows


@pytest.mark.parametrize("name", OTHERS)
def test_with_watermarks(exact: Runs, name: str) -> None:
    assert exact.rows[name] == OTHERS[name].rows


@_IN_BY_TIME
@pytest.mark.parametrize("name", BY_TIME)
def test_without_watermarks(by_time: Runs, name: str) -> None:
    assert by_time.rows[name] == BY_TIME[name].rows


@pytest.mark.usefixtures("spark")  # marks the test `jvm`: pytest does not see the fixture of getfixturevalue
@pytest.mark.parametrize(
    ("group", "cases"), [("core", CORE), ("exact", OTHERS), pytest.param("by_time", BY_TIME, marks=_IN_BY_TIME)]
)
def test_tables_with_possible_copies_have_a_gap(
    request: pytest.FixtureRequest, group: str, cases: dict[str, Case]
) -> None:
    runs: Runs = request.getfixturevalue(group)
    assert runs.doubtful == {name for name, case in cases.items() if case.doubt}


@pytest.mark.parametrize(
    ("group", "cases"),
    [
        pytest.param("core", CORE, marks=pytest.mark.core(1, 4)),
        ("exact", OTHERS),
        pytest.param("by_time", BY_TIME, marks=_IN_BY_TIME),
    ],
)
def test_each_change_is_counted_once(
    request: pytest.FixtureRequest, spark: SparkSession, group: str, cases: dict[str, Case]
) -> None:
    runs: Runs = request.getfixturevalue(group)
    assert sum(report.totals.duplicates for report in runs.reports) == sum(case.duplicates for case in cases.values())
    assert sum(report.totals.late for report in runs.reports) == sum(case.late for case in cases.values())
    assert all(not report.breaches for report in runs.reports)
    statuses = spark.read.format("delta").load(runs.paths.table("ddl_history")).select("status").distinct().collect()
    assert {row["status"] for row in statuses} <= {"applied", "duplicate"}
    assert lake_balance(Lake(spark, runs.paths)).is_balanced


def test_a_binlog_that_is_played_again_in_later_runs(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """The DROP between the equal CREATEs is in an earlier cut."""
    capture = Path(__file__).parents[3] / "data" / "captures" / "world-canal-point-in-time-recovery"
    truth = json.loads(gzip.decompress((capture / "expected.json.gz").read_bytes()))["tables"]
    lines = gzip.decompress((capture / "records.jsonl.gz").read_bytes()).decode().splitlines(keepends=True)
    (tmp_path / "captures").mkdir()
    for first, end in ((0, 11), (11, 12), (12, 19)):
        (tmp_path / "captures" / f"{end}.jsonl").write_text("".join(lines[first:end]), encoding="utf-8")
        report = ingest(spark, paths, tmp_path / "captures")
    assert {entry.name.table for entry in report.mirrors if entry.gaps} == {"log"}
    for entry in report.mirrors:
        table = truth[str(entry.name)]
        assert differences(spark.read.format("delta").load(entry.path), table["columns"], table["rows"]) == []


class _KillAfterPlan(Killer):
    """Kills the first run right after it stored the plan of its cut."""

    def __init__(self, paths: LakePaths) -> None:
        super().__init__()
        self._plans = paths.app_id("cut_plans")
        self._planned = self._done = False

    def strike(self, *deed: object) -> None:
        if self._planned and not self._done:
            self._done = True
            raise Killed(*deed)
        self._planned = self._planned or deed[0] == self._plans


@pytest.mark.core(2)
def test_a_cut_that_leaves_out_copies_is_finished_by_another_run(
    spark: SparkSession, tmp_path: Path, paths: LakePaths
) -> None:
    """The resumed run finds as many rows per step as the plan, which excludes the redelivered ones."""
    topic = Topic("x")
    topic.send(ddl(_KEYLESS.format("x"), 1, table="x", kind="CREATE"))
    for payload, partition in EXACT["messages_with_a_key_of_a_keyless_table"].slices[0]:
        topic.send(payload, partition)
    topic.write(tmp_path / "captures", "0.jsonl")
    assert ingested_with_kills(spark, paths, tmp_path / "captures", _KillAfterPlan(paths)) == 1
    rows = spark.read.format("delta").load(paths.mirror(TableName("db", "x"))).collect()
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, "a"), (2, "a")]


def test_rows_with_keys_and_tsos_are_not_searched(spark: SparkSession, tmp_path: Path) -> None:
    """Decoding counts the rows without a key. A row that waits for its watermark counts until a cut has applied it."""
    paths, topic, captures = LakePaths(str(tmp_path / "lake"), "shop"), Topic(), tmp_path / "captures"
    slices = {
        5: [(ddl(_KEYED.format("k"), 1), 0), (ddl(_KEYLESS.format("bag"), 1), 0), _add_keyed("k", 2, "1")],
        10: [_add_keyed("k", 6, "2")],
        20: [_add_keyed("k", 14, "3"), _add("bag", 22, "1")],
        30: [_add_keyed("k", 24, "4")],
        40: [_add_keyed("k", 34, "5")],
    }
    searched = []
    for end, messages in slices.items():
        for payload, partition in [*messages, (watermark(end), 0)]:
            topic.send(payload, partition)
        topic.write(captures, f"{end}.jsonl")
        with patch.object(cut_rows, "find_copies", side_effect=find_copies) as search:
            report = ingest(spark, paths, captures)
        assert report.totals.changes == (2 if end == 30 else 1)
        searched += [end] if search.called else []
    # the first cut creates the table, whose rows may be older than its key
    assert searched == [5, 20, 30]
    assert lake_balance(Lake(spark, paths)).is_balanced


@_IN_BY_TIME
def test_table_history_is_in_stream_order(spark: SparkSession, by_time: Runs) -> None:
    place = list(BY_TIME).index("canal_drops_a_table_twice_within_one_second_and_restarts")
    lake = Lake(spark, by_time.paths)
    rows = table_history(lake, "db", f"t{place}", {})
    statements = [(row["sql"].split()[0], row["status"]) for row in rows if "sql" in row]
    once = [("DROP", "applied"), ("CREATE", "applied")] * 2
    assert statements == [("CREATE", "applied"), *once, *((verb, "duplicate") for verb, _ in once)]
    of_one_row = history_lines(table_history(lake, "db", f"t{place}", {"id": "1"}))
    changes = [line for line in of_one_row if " INSERT " in line]
    assert len(changes) == 2
    assert all("after  {'id': '1', 'v': 'a'}" in line for line in changes)
