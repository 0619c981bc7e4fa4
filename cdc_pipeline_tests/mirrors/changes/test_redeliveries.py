"""At least once in, exactly once out, where a key and a TSO do not say it all: each case is one table's stream."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cdc_pipeline_tests
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.kills import Killed, Killer, ingested_with_kills
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, dataworks, ddl, row, watermark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

_TYPES = {"id": "int", "v": "varchar"}
_KEYLESS = "CREATE TABLE {} (id INT, v VARCHAR(20))"
_KEYED = "CREATE TABLE {} (id INT PRIMARY KEY, v VARCHAR(20))"


@dataclass
class Case:
    """`slices` are messages by partition, each slice a run; `rows` the table's rows after each; `duplicates` how many
    changes in all were told to be re-deliveries, and how many were known and came after their time. `doubt`: the table
    says that nothing tells whether equal rows are one."""

    slices: list[list[tuple[str, int]]]
    rows: list[list[tuple[int, str | None]]]
    duplicates: int = 0
    create: str = _KEYLESS
    late: int = 0
    doubt: bool = False


def _put(table: str, step: int, key: str, *, exact: bool = True, ts: int = 5, partition: int = 0) -> tuple[str, int]:
    message = json.loads(row("INSERT", table, step, {"id": key, "v": "a"}, types=_TYPES, key=[], extension=exact))
    return json.dumps({**message, "ts": message["es"] + ts}), partition


def _named(table: str, step: int, key: str) -> tuple[str, int]:
    return row("INSERT", table, step, {"id": key, "v": "a"}, types=_TYPES, key=["id"]), 0


def _later(sent: tuple[str, int], ms: int) -> tuple[str, int]:
    message = json.loads(sent[0])
    return json.dumps({**message, "ts": message["ts"] + ms}), sent[1]


def _take(table: str, step: int, key: str, *, exact: bool = True) -> tuple[str, int]:
    return row("DELETE", table, step, {"id": key, "v": "a"}, types=_TYPES, key=[], extension=exact), 0


def _keyed(kind: str, table: str, step: int, key: str, value: str, *, old: str | None = None) -> tuple[str, int]:
    before = None if old is None else {"id": key, "v": old}
    data = {"id": key, "v": value}
    return row(kind, table, step, data, old=before, types=_TYPES, key=["id"], extension=False), 0


def _canal(
    kind: str, table: str, step: int, key: str, batch: int, *, ms: int = 0, partition: int = 0
) -> tuple[str, int]:
    message = json.loads(canal(kind, table, step, [{"id": key, "v": "a"}], types=_TYPES, batch=batch))
    return json.dumps({**message, "ts": message["ts"] + ms}), partition


def _canal_keyed(kind: str, step: int, key: str, batch: int, *, ms: int = 0) -> tuple[str, int]:
    """A row of another table, which has a key."""
    message = json.loads(_canal(kind, "x", step, key, batch, ms=ms)[0])
    return json.dumps({**message, "table": "keyed", "database": "other", "pkNames": ["id"]}), 0


def _canal_ddl(sql: str, step: int, batch: int, *, ms: int = 0) -> tuple[str, int]:
    kind = {"CREATE": "CREATE", "DROP": "ERASE", "TRUNCATE": "TRUNCATE"}[sql.split()[0]]
    message = json.loads(canal_ddl(sql, step, table="x", kind=kind))
    return json.dumps({**message, "ts": message["ts"] + ms, "id": batch}), 0


def _dataworks(op: str, table: str, sequence: str, key: int) -> tuple[str, int]:
    image = {"id": key, "v": "a"}
    sides = {"after": image} if op == "INSERT" else {"before": image}
    return dataworks(op, table, 3, **sides, types={"id": "LONG", "v": "STRING"}, sequence=sequence), 0  # type: ignore[arg-type]


def _watermark(step: int) -> tuple[str, int]:
    return watermark(step), 0


# With TSOs and watermarks. Tables of one lake share its slices and watermarks: 10, 20 and 40 close them.
EXACT = {
    "equal_rows_of_one_transaction": Case(
        [[_put("x", 5, "1"), _put("x", 5, "1", ts=6), _watermark(10)], [_watermark(20)], [_watermark(40)]],
        [[(1, "a"), (1, "a")]] * 3,
    ),
    "a_stretch_again_from_an_earlier_checkpoint": Case(
        [
            # begins again at 5, after the change at 7
            [_put("x", 5, "1"), _put("x", 5, "1"), _put("x", 7, "2"), _put("x", 5, "1", ts=900)]
            + [_put("x", 5, "1", ts=901), _put("x", 7, "2", ts=902), _put("x", 8, "2", ts=903), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a"), (2, "a"), (2, "a")]] * 3,
        duplicates=3,
    ),
    "what_comes_again_of_a_closed_time_says_nothing_of_others": Case(
        [
            [_put("x", 5, "1"), _watermark(6), _put("x", 8, "1"), _put("x", 8, "1", ts=6), _put("x", 5, "1", ts=3010)]
            + [_put("x", 8, "1", ts=11), _put("x", 8, "1", ts=12), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")] * 5] * 3,
        duplicates=1,
    ),
    "a_watermark_has_closed_the_time_of_what_comes_again": Case(
        [
            [_put("x", 5, "1"), _watermark(6), _put("x", 5, "1", ts=900), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=1,
    ),
    "twice_again_below_a_watermark": Case(
        [
            [_put("x", 5, "1"), _watermark(6), _put("x", 5, "1", ts=900), _put("x", 5, "1", ts=901), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=2,
    ),
    "a_whole_commit_again_after_the_checkpoint_was_sent_again": Case(
        [
            [_watermark(3), _put("x", 5, "1"), _put("x", 5, "1"), _watermark(3), _put("x", 5, "1", ts=300)]
            + [_put("x", 5, "1", ts=301), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a")]] * 3,
        duplicates=2,
    ),
    "a_whole_commit_again_seconds_later": Case(
        [
            [_put("x", 5, "1"), _put("x", 5, "2"), _put("x", 5, "1"), _put("x", 5, "1", ts=4200)]
            + [_put("x", 5, "2", ts=4201), _put("x", 5, "1", ts=4202), _put("x", 7, "1", ts=4203), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a"), (1, "a"), (2, "a")]] * 3,
        duplicates=3,
    ),
    "a_commit_that_was_cut_short_comes_again_twice": Case(
        [
            [_put("x", 5, "1"), _put("x", 5, "1", ts=4200), _put("x", 5, "2", ts=4201), _put("x", 5, "1", ts=9000)]
            + [_put("x", 5, "2", ts=9001), _put("x", 5, "3", ts=9002), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (2, "a"), (3, "a")]] * 3,
        duplicates=3,
        doubt=True,
    ),
    "equal_rows_on_both_sides_of_a_watermark_that_does_not_advance": Case(
        [
            [_watermark(3), _put("x", 5, "1"), _watermark(3), _put("x", 5, "1", ts=6), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a")]] * 3,
    ),
    "a_single_row_again_after_the_checkpoint_was_sent_again": Case(
        [
            [_watermark(3), _put("x", 5, "1"), _watermark(3), _put("x", 5, "1", ts=2300), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=1,
    ),
    "a_single_row_seconds_apart_and_nothing_else": Case(
        [
            [_put("x", 5, "1"), _put("x", 5, "1", ts=4200), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=1,
        doubt=True,
    ),
    "messages_that_name_a_key_of_a_table_without_one_seconds_apart": Case(
        [
            [_named("x", 5, "1"), _later(_named("x", 5, "1"), 4200), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=1,
        doubt=True,
    ),
    "equal_rows_seconds_apart_and_rows_sent_ahead_that_do_not_come_again": Case(
        [
            [_put("x", 5, "1"), _put("ahead1", 7, "9"), _put("x", 5, "1", ts=4200), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a")]] * 3,
        doubt=True,
    ),
    "equal_rows_seconds_apart_and_rows_sent_ahead_that_come_again": Case(
        [
            [_put("x", 5, "1"), _put("ahead2", 7, "9"), _put("x", 5, "1", ts=4200), _put("ahead2", 7, "9", ts=4201)]
            + [_watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=2,
    ),
    "a_changefeed_that_restarts_while_it_sends_again": Case(
        [
            [_put("ahead3", 5, "9"), *(_put("x", 5, key) for key in "123")]
            + [_put("ahead3", 5, "9", ts=4000), _put("x", 5, "1", ts=4000)]
            + [_put("ahead3", 5, "9", ts=9000), *(_put("x", 5, key, ts=9000) for key in "123"), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (2, "a"), (3, "a")]] * 3,
        duplicates=6,
    ),
    "equal_rows_seconds_apart_and_rows_sent_ahead_that_come_again_by_a_later_restart": Case(
        [
            [_put("x", 5, "1"), _put("ahead4", 7, "9"), _put("x", 5, "1", ts=4200)]
            + [_put("ahead4", 7, "9", ts=4900), _put("x", 5, "1", ts=7000), _put("x", 5, "1", ts=7001), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a")]] * 3,
        duplicates=3,
        doubt=True,
    ),
    "equal_rows_seconds_apart_and_rows_sent_ahead_that_come_again_after_the_watermark": Case(
        [
            [_put("x", 5, "1"), _put("ahead5", 7, "9"), _put("x", 5, "1", ts=4200), _watermark(6)]
            + [_put("ahead5", 7, "9", ts=9000), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        duplicates=2,
        doubt=True,
    ),
    "a_sink_that_pauses_within_a_commit_goes_on_with_other_rows": Case(
        [
            [
                _put("x", 5, "1"),
                _put("x", 5, "2"),
                _put("x", 5, "1", ts=8000),
                _put("x", 5, "3", ts=8001),
                _watermark(10),
            ],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a"), (2, "a"), (3, "a")]] * 3,
    ),
    "a_sink_that_pauses_within_a_commit_goes_on_with_an_equal_row_alone": Case(
        [
            [
                _put("x", 5, "1"),
                _put("x", 5, "2"),
                _put("x", 5, "1", ts=8000),
                _put("x", 7, "3", ts=8001),
                _watermark(10),
            ],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a"), (2, "a"), (3, "a")]] * 3,
    ),
    "a_delete_of_one_of_several_comes_again": Case(
        [
            [_put("x", 5, "1"), _put("x", 5, "1"), _put("x", 5, "1"), _take("x", 6, "1"), _put("x", 9, "3")]
            + [_take("x", 6, "1"), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (1, "a"), (3, "a")]] * 3,
        duplicates=1,
    ),
    "messages_that_name_a_key_of_a_table_without_one": Case(
        [
            [_named("x", 5, "1"), _named("x", 7, "2"), _named("x", 5, "1"), _named("x", 7, "2"), _watermark(10)],
            [_watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a"), (2, "a")]] * 3,
        duplicates=2,
    ),
    "rows_at_the_very_watermark_that_were_not_sent_before_it": Case(
        [
            [_put("x", 5, "1"), _put("x", 10, "2"), _watermark(10)],
            # the second copy of the row that was in, and one that was not, twice
            [_put("x", 10, "2", ts=900), _put("x", 10, "3", ts=901), _put("x", 10, "3", ts=902), _watermark(20)],
            [_put("x", 10, "3", ts=2900), _put("x", 20, "4"), _watermark(40)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (2, "a"), (3, "a")], [(1, "a"), (2, "a"), (3, "a"), (4, "a")]],
        duplicates=1,
        late=2,
    ),
    "a_deletion_at_the_very_watermark_that_comes_again_takes_nothing_away": Case(
        [
            [_put("x", 5, "1"), _take("x", 10, "1"), _put("x", 10, "1"), _watermark(10)],
            [_take("x", 10, "1"), _watermark(20)],
            [_watermark(40)],
        ],
        [[(1, "a")]] * 3,
        create=_KEYED,
        late=1,
    ),
    "statements_at_the_very_watermark_on_both_sides_of_it": Case(
        [
            [_put("x", 5, "1"), (ddl("ALTER TABLE x RENAME COLUMN v TO w", 10, table="x"), 0), _watermark(10)],
            [(ddl("ALTER TABLE x RENAME COLUMN w TO v", 10, table="x"), 0), _put("x", 15, "2"), _watermark(20)],
            # both again, which are in
            [
                (ddl("ALTER TABLE x RENAME COLUMN v TO w", 10, table="x"), 0),
                (ddl("ALTER TABLE x RENAME COLUMN w TO v", 10, table="x"), 0),
                _watermark(40),
            ],
        ],
        [[(1, None)], [(1, "a"), (2, "a")], [(1, "a"), (2, "a")]],
    ),
    "what_waits_comes_again_before_its_time": Case(
        [
            [_watermark(10), _put("x", 15, "1")],
            [_put("x", 15, "1", ts=70), _put("x", 17, "2"), _put("x", 15, "1", ts=900), _watermark(20)],
            [_put("x", 15, "1", ts=990), _watermark(40)],
        ],
        # the first two are one after the other: nothing tells them from two equal rows
        [[], [(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a")]],
        duplicates=1,
        late=1,
    ),
}

# Without watermarks: each slice is a cut.
BY_TIME = {
    "ticdc_keyed_what_was_deleted_stays_away_while_the_stretch_comes_again": Case(
        [
            [_keyed("INSERT", "x", 2, "1", "a"), _keyed("DELETE", "x", 9, "1", "a")],
            [_keyed("INSERT", "x", 2, "1", "a")],
            [_keyed("DELETE", "x", 9, "1", "a"), _keyed("INSERT", "x", 12, "2", "b")],
        ],
        [[], [], [(2, "b")]],
        duplicates=2,
        create=_KEYED,
    ),
    "ticdc_keyed_what_comes_late_for_the_first_time_undoes_nothing": Case(
        [
            [_keyed("INSERT", "x", 2, "1", "a"), _keyed("UPDATE", "x", 8, "1", "c", old="b")],
            [_keyed("UPDATE", "x", 5, "1", "b", old="a")],
            [_keyed("DELETE", "x", 9, "1", "c")],
        ],
        [[(1, "c")], [(1, "c")], []],
        create=_KEYED,
    ),
    "ticdc_the_statement_that_made_the_table_comes_after_its_rows": Case(
        [
            [_put("x", 2, "1", exact=False), _put("x", 4, "1", exact=False), _put("x", 2, "1", exact=False)],
            [
                (ddl(_KEYED.format("x"), 1, table="x", kind="CREATE", extension=False), 1),
                _put("x", 6, "2", exact=False),
            ],
            [_take("x", 8, "1", exact=False)],
        ],
        # without a definition and without a key in the messages, two rows; with it one
        [[(1, "a"), (1, "a")], [(1, "a"), (2, "a")], [(2, "a")]],
        duplicates=1,
        create="",
    ),
    "ticdc_what_was_before_a_truncate_comes_after_it": Case(
        [
            [_put("x", 2, "1", exact=False), (ddl("TRUNCATE TABLE x", 7, table="x", extension=False), 0)],
            [_put("x", 5, "2", exact=False, partition=1)],
            [_put("x", 9, "3", exact=False)],
        ],
        [[], [], [(3, "a")]],
    ),
    "ticdc_a_truncate_comes_after_what_follows_it": Case(
        [
            [_put("x", 2, "1", exact=False, partition=1)],
            [_put("x", 9, "2", exact=False, partition=1), _put("x", 9, "2", exact=False, partition=1)],
            [(ddl("TRUNCATE TABLE x", 5, table="x", extension=False), 0)],
        ],
        [[(1, "a")], [(1, "a"), (2, "a"), (2, "a")], [(2, "a"), (2, "a")]],
    ),
    "ticdc_a_table_is_made_again_after_rows_of_its_new_self": Case(
        [
            [_put("x", 2, "1", exact=False, partition=1)],
            [_put("x", 19, "4", exact=False, partition=1)],
            [
                (ddl("DROP TABLE x", 15, table="x", extension=False), 0),
                (ddl(_KEYLESS.format("x"), 16, table="x", kind="CREATE", extension=False), 0),
                (ddl("TRUNCATE TABLE x", 18, table="x", extension=False), 0),
            ],
        ],
        [[(1, "a")], [(1, "a"), (4, "a")], [(4, "a")]],
    ),
    "ticdc_keyless_a_stretch_in_the_next_run": Case(
        [
            [_put("x", 2, "1", exact=False), _put("x", 2, "1", exact=False), _put("x", 4, "2", exact=False)],
            [_put("x", 2, "1", exact=False), _put("x", 2, "1", exact=False), _put("x", 4, "2", exact=False)]
            + [_put("x", 6, "1", exact=False)],
            [_take("x", 8, "1", exact=False)],
        ],
        [[(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a")]],
        duplicates=3,
    ),
    "canal_begins_to_count_again_within_one_second": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "1", 8)],
            [_canal("INSERT", "x", 2, "1", 1, ms=300), _canal("INSERT", "x", 2, "1", 2, ms=301)],
            [_canal("INSERT", "x", 2, "1", 3, ms=400)],
        ],
        [[(1, "a"), (1, "a")], [(1, "a"), (1, "a")], [(1, "a")] * 3],
        duplicates=2,
        doubt=True,  # the last one may be batch 2 sent again: it is like that, and 99 ms later
    ),
    "canal_a_long_transaction_puts_the_row_of_an_earlier_one": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 4, "2", 8)],
            [_canal("INSERT", "x", 2, "1", 9, ms=2500), _canal("INSERT", "x", 5, "3", 10)],
            [_canal("DELETE", "x", 6, "1", 11)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (3, "a")], [(1, "a"), (2, "a"), (3, "a")]],
    ),
    "canal_sends_batches_again_with_new_numbers": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 4, "2", 8), _canal("INSERT", "x", 4, "2", 8)],
            [_canal("INSERT", "x", 2, "1", 9, ms=2500), _canal("INSERT", "x", 4, "2", 10, ms=600)]
            + [_canal("INSERT", "x", 4, "2", 10, ms=600), _canal("INSERT", "x", 5, "3", 10)],
            [_canal("DELETE", "x", 6, "1", 11)],
        ],
        [[(1, "a"), (2, "a"), (2, "a")], [(1, "a"), (2, "a"), (2, "a"), (3, "a")], [(2, "a"), (2, "a"), (3, "a")]],
        duplicates=3,
    ),
    "canal_begins_to_count_again_and_the_numbers_of_one_partition_go_on": Case(
        [
            # this partition had the small numbers only, the other one the large
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
    "canal_begins_again_and_each_partition_shows_it_at_another_time": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "1", 7), _canal("DELETE", "x", 2, "1", 8, ms=1)]
            + [_canal("INSERT", "x", 2, "9", 9, ms=2, partition=1)],
            # the other partition's first message comes while this one has got on
            [_canal("INSERT", "x", 2, "1", 1, ms=900), _canal("INSERT", "x", 2, "1", 1, ms=900)]
            + [_canal("DELETE", "x", 2, "1", 2, ms=901), _canal("INSERT", "x", 2, "9", 3, ms=902, partition=1)]
            + [_canal("INSERT", "x", 2, "1", 4, ms=903), _canal("DELETE", "x", 2, "1", 5, ms=904)]
            + [_canal("INSERT", "x", 2, "1", 6, ms=905)],
            [],
        ],
        [[(1, "a"), (9, "a")], [(1, "a"), (1, "a"), (9, "a")], [(1, "a"), (1, "a"), (9, "a")]],
        duplicates=4,
    ),
    "canal_begins_again_with_a_statement_before_any_row": Case(
        [
            [_canal_ddl("TRUNCATE TABLE x", 2, 1), _canal("INSERT", "x", 2, "1", 2, ms=1)],
            [_canal_ddl("TRUNCATE TABLE x", 2, 1, ms=2000), _canal("INSERT", "x", 2, "1", 3, ms=2001)]
            + [_canal("INSERT", "x", 2, "2", 4, ms=2002)],
            [_canal("INSERT", "x", 8, "2", 9)],
        ],
        [[(1, "a")], [(1, "a"), (2, "a")], [(1, "a"), (2, "a"), (2, "a")]],
        duplicates=1,
    ),
    "canal_begins_again_in_its_first_batch": Case(
        [
            [_canal_ddl("TRUNCATE TABLE x", 2, 1), _canal("INSERT", "x", 2, "1", 1), _canal("INSERT", "x", 2, "2", 1)],
            [_canal_ddl("TRUNCATE TABLE x", 2, 1, ms=2000), _canal("INSERT", "x", 2, "1", 1, ms=2001)]
            + [_canal("INSERT", "x", 2, "2", 1, ms=2001), _canal("INSERT", "x", 2, "3", 1, ms=2002)],
            [_canal("INSERT", "x", 8, "2", 9)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (2, "a"), (3, "a")], [(1, "a"), (2, "a"), (2, "a"), (3, "a")]],
        duplicates=2,
    ),
    "canal_es_steps_back_inside_a_batch": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 4, "2", 7)],
            [_canal("INSERT", "x", 2, "1", 7, ms=2001), _canal("INSERT", "x", 4, "2", 7, ms=2)],
            [_canal("DELETE", "x", 6, "1", 8)],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (2, "a")], [(1, "a"), (2, "a"), (2, "a")]],
    ),
    "canal_sends_a_batch_again_and_a_key_in_it_tells": Case(
        [
            # the batch is put before, and a row of a table with a key is in it twice: that cannot be
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "1", 7), _canal_keyed("INSERT", 2, "1", 7)],
            [_canal("INSERT", "x", 2, "1", 8, ms=100), _canal("INSERT", "x", 2, "1", 8, ms=101)]
            + [_canal_keyed("INSERT", 2, "1", 8, ms=102), _canal("INSERT", "x", 2, "1", 8, ms=103)],
            [_canal("DELETE", "x", 6, "1", 9)],
        ],
        [[(1, "a"), (1, "a")], [(1, "a"), (1, "a"), (1, "a")], [(1, "a"), (1, "a")]],
        duplicates=3,
    ),
    "canal_sends_a_batch_again_that_failed_in_turn": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "2", 7), _canal_keyed("INSERT", 2, "2", 7)],
            [_canal("INSERT", "x", 2, "1", 8, ms=100)],
            [_canal("INSERT", "x", 2, "1", 9, ms=200), _canal("INSERT", "x", 2, "2", 9, ms=201)]
            + [_canal_keyed("INSERT", 2, "2", 9, ms=202), _canal("INSERT", "x", 2, "3", 9, ms=203)],
        ],
        # of the cut batch nothing tells until it comes as a whole
        [[(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (3, "a")]],
        duplicates=3,
        doubt=True,
    ),
    "canal_sends_a_batch_again_or_the_same_happened_again": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("INSERT", "x", 2, "2", 7)],
            [_canal("INSERT", "x", 2, "1", 8, ms=100), _canal("INSERT", "x", 2, "2", 8, ms=100)],
            [],
        ],
        [[(1, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (2, "a")], [(1, "a"), (1, "a"), (2, "a"), (2, "a")]],
        doubt=True,
    ),
    "canal_puts_a_key_again_that_it_took_in_the_batch": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal_keyed("INSERT", 2, "3", 7), _canal_keyed("DELETE", 2, "3", 7)],
            [_canal("INSERT", "x", 2, "1", 8, ms=10), _canal_keyed("INSERT", 2, "3", 8, ms=11)]
            + [_canal_keyed("DELETE", 2, "3", 8, ms=12)],
            [],
        ],
        # ten milliseconds later: no retry, for which Canal waits
        [[(1, "a")], [(1, "a"), (1, "a")], [(1, "a"), (1, "a")]],
    ),
    "canal_empties_the_table_in_the_batch_that_is_like_the_one_before": Case(
        [
            [_canal_ddl("TRUNCATE TABLE x", 2, 7), _canal("INSERT", "x", 2, "1", 7), _canal_keyed("INSERT", 2, "5", 7)],
            [_canal_ddl("TRUNCATE TABLE x", 2, 8, ms=100), _canal("INSERT", "x", 2, "1", 8, ms=101)]
            + [_canal_keyed("INSERT", 2, "5", 8, ms=102)],
            [_canal("INSERT", "x", 2, "1", 9, ms=103)],
        ],
        [[(1, "a")], [(1, "a")], [(1, "a"), (1, "a")]],
        doubt=True,
    ),
    "canal_drops_a_table_twice_within_one_second_and_begins_again": Case(
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
    "canal_puts_and_takes_the_same_row_within_one_second": Case(
        [
            [_canal("INSERT", "x", 2, "1", 7), _canal("DELETE", "x", 2, "1", 7, ms=1)],
            [_canal("INSERT", "x", 2, "1", 8, ms=2)],
            [_canal("DELETE", "x", 3, "1", 9), _canal("INSERT", "x", 3, "1", 9, ms=1)],
        ],
        [[], [(1, "a")], [(1, "a")]],
        create=_KEYED,
    ),
    "dataworks_tells_a_copy_by_its_number": Case(
        [
            [_dataworks("INSERT", "x", "11", 1), _dataworks("INSERT", "x", "12", 1)],
            [_dataworks("INSERT", "x", "12", 1), _dataworks("INSERT", "x", "13", 2)],
            [_dataworks("DELETE", "x", "14", 1), _dataworks("DELETE", "x", "14", 1)],
        ],
        [[(1, "a"), (1, "a")], [(1, "a"), (1, "a"), (2, "a")], [(1, "a"), (2, "a")]],
        duplicates=2,
        create="",
    ),
}


@dataclass
class Told:
    """The reports of a group's runs, and each case's rows after each run."""

    paths: LakePaths
    reports: list[CutReport]
    rows: dict[str, list[list[tuple[int, str | None]]]]
    doubtful: set[str] = field(default_factory=set)


def _told(spark: SparkSession, folder: Path, cases: dict[str, Case], *, exact: bool) -> Told:
    """All cases in one lake, each with a topic and a table of its name (`x` in the messages)."""
    told = Told(LakePaths(str(folder / "lake"), "shop"), [], {name: [] for name in cases})
    topics = {name: Topic(name) for name in cases}
    # names of cases are longer than a table's may be
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
        told.reports.append(ingest(spark, told.paths, folder / "captures"))
        for name in cases:
            mirror = spark.read.format("delta").load(told.paths.mirror(TableName("db", tables[name])))
            rows = [found.asDict() for found in mirror.collect()]
            told.rows[name].append(sorted((found["id"], found.get("v")) for found in rows))
    entries = {entry.name.table: entry for entry in published_entries(published_cut(spark, told.paths), told.paths)}
    told.doubtful = {
        name
        for name, table in tables.items()
        if any(words in gap for gap in entries[table].gaps for words in ("do not show which", "nothing tells which"))
    }
    return told


# A lake of their own for those of `make test`.
_IN_CORE = (
    "equal_rows_of_one_transaction",
    "a_stretch_again_from_an_earlier_checkpoint",
    "a_whole_commit_again_after_the_checkpoint_was_sent_again",
    "a_deletion_at_the_very_watermark_that_comes_again_takes_nothing_away",
    "statements_at_the_very_watermark_on_both_sides_of_it",
)
CORE = {name: EXACT[name] for name in _IN_CORE}
OTHERS = {name: case for name, case in EXACT.items() if name not in CORE}


# The lake takes minutes to build: its tests are a scope of their own (`support/shards.py`).
_IN_BY_TIME = pytest.mark.xdist_group("by_time")


@pytest.fixture(scope="module")
def core(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return _told(spark, tmp_path_factory.mktemp("core"), CORE, exact=True)


@pytest.fixture(scope="module")
def exact(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return _told(spark, tmp_path_factory.mktemp("exact"), OTHERS, exact=True)


@pytest.fixture(scope="module")
def by_time(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return _told(spark, tmp_path_factory.mktemp("by_time"), BY_TIME, exact=False)


@pytest.mark.core(4)
@pytest.mark.parametrize("name", CORE)
def test_first_with_watermarks(core: Told, name: str) -> None:
    assert core.rows[name] == CORE[name].rows


@pytest.mark.parametrize("name", OTHERS)
def test_with_watermarks(exact: Told, name: str) -> None:
    assert exact.rows[name] == OTHERS[name].rows


@_IN_BY_TIME
@pytest.mark.parametrize("name", BY_TIME)
def test_without_watermarks(by_time: Told, name: str) -> None:
    assert by_time.rows[name] == BY_TIME[name].rows


@pytest.mark.usefixtures("spark")  # marks the test `jvm`: pytest does not see the fixture of getfixturevalue
@pytest.mark.parametrize(
    ("group", "cases"), [("core", CORE), ("exact", OTHERS), pytest.param("by_time", BY_TIME, marks=_IN_BY_TIME)]
)
def test_where_nothing_but_a_pause_tells_the_doubt_is_named(
    request: pytest.FixtureRequest, group: str, cases: dict[str, Case]
) -> None:
    told: Told = request.getfixturevalue(group)
    assert told.doubtful == {name for name, case in cases.items() if case.doubt}


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
    told: Told = request.getfixturevalue(group)
    assert sum(report.totals.duplicates for report in told.reports) == sum(case.duplicates for case in cases.values())
    assert sum(report.totals.late for report in told.reports) == sum(case.late for case in cases.values())
    assert all(not report.breaches for report in told.reports)
    statuses = spark.read.format("delta").load(told.paths.table("ddl_history")).select("status").distinct().collect()
    assert {row["status"] for row in statuses} <= {"applied", "duplicate"}
    assert lake_balance(spark, told.paths).balanced


class _AfterThePlan(Killer):
    """Stops the first run at what comes once its cut is planned."""

    def __init__(self, paths: LakePaths) -> None:
        super().__init__()
        self._plans = paths.writer("cut_plans")
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
    """The steps count rows as they are found once what came twice is left out."""
    topic = Topic("x")
    topic.send(ddl(_KEYLESS.format("x"), 1, table="x", kind="CREATE"))
    for payload, partition in EXACT["messages_that_name_a_key_of_a_table_without_one"].slices[0]:
        topic.send(payload, partition)
    topic.write(tmp_path / "captures", "0.jsonl")
    assert ingested_with_kills(spark, paths, tmp_path / "captures", _AfterThePlan(paths)) == 1
    rows = spark.read.format("delta").load(paths.mirror(TableName("db", "x"))).collect()
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, "a"), (2, "a")]


@_IN_BY_TIME
def test_a_table_s_history_is_printed_in_the_order_of_the_stream(by_time: Told) -> None:
    place = list(BY_TIME).index("canal_drops_a_table_twice_within_one_second_and_begins_again")
    script = runpy.run_path(str(Path(cdc_pipeline_tests.__file__).parents[1] / "scripts" / "table_history.py"))
    pipeline = Path(by_time.paths.home)
    rows = script["history"](pipeline, "db", f"t{place}", {})
    statements = [(row["sql"].split()[0], row["status"]) for row in rows if "sql" in row]
    once = [("DROP", "applied"), ("CREATE", "applied")] * 2
    assert statements == [("CREATE", "applied"), *once, *((verb, "duplicate") for verb, _ in once)]
    of_one_row = script["lines"](script["history"](pipeline, "db", f"t{place}", {"id": "1"}))
    changes = [line for line in of_one_row if " INSERT " in line]
    assert len(changes) == 2
    assert all("after  {'id': '1', 'v': 'a'}" in line for line in changes)
