"""Cases: statements on tables with masked columns, and the expected masks and gaps."""

from __future__ import annotations

from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.masks import HASH, NULL, Mask
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline_tests.support.masks import SALT
from cdc_pipeline_tests.support.messages import tso

Rules = tuple[tuple[str, tuple[tuple[str, Mask], ...]], ...]


RULES: Rules = (
    ("db.a*", (("Email", HASH), ("phone", NULL))),
    ("db.*", (("phone", HASH), ("secret", NULL))),
)


T = "CREATE TABLE {} (id INT PRIMARY KEY, email VARCHAR(20) DEFAULT 'clear', phone INT DEFAULT 5, v INT DEFAULT 7)"


def planned(
    *statements: str, rules: Rules = RULES, salt: str = SALT, known: tuple[MirrorState, ...] = ()
) -> tuple[PlanDraft, CutPlan]:
    before = {state.name: state for state in known}
    columns = ColumnRules(masks=rules, salt=salt)
    draft = PlanDraft((), before.get, frozenset(before), 1, CutSettings("UTC", columns=columns))
    return draft, Planner(draft).plan([masked_event(place, sql) for place, sql in enumerate(statements, 1)])


def masked_event(place: int, sql: str) -> DdlEvent:
    changes = event_changes("ddl", "db", "", sql)
    return DdlEvent("t", 0, place, "db", "", tso(place), True, tso(place) >> 18, None, sql, changes, "ticdc")


# name → (statements, table, its expected masks, prefixes of its expected gaps)
CASES: dict[str, tuple[list[str], str, dict[str, Mask], list[str]]] = {
    "the first pattern that names a column counts, case does not": (
        [T.format("a1")],
        "a1",
        {"email": HASH, "phone": NULL},
        [],
    ),
    "another table": ([T.format("b1")], "b1", {"phone": HASH}, []),
    "a column that is renamed stays masked": (
        [T.format("a1"), "ALTER TABLE a1 RENAME COLUMN email TO contact, CHANGE phone tel BIGINT"],
        "a1",
        {"contact": HASH, "tel": NULL},
        [],
    ),
    "a column that gets a name of the rules is masked from then on": (
        [T.format("a1"), "ALTER TABLE a1 RENAME COLUMN v TO secret"],
        "a1",
        {"email": HASH, "phone": NULL, "secret": NULL},
        [],
    ),
    "names that change places": (
        [T.format("a1"), "ALTER TABLE a1 RENAME COLUMN v TO email, RENAME COLUMN email TO v"],
        "a1",
        {"email": HASH, "v": HASH, "phone": NULL},
        [],
    ),
    "a column that is dropped and one added": (
        [T.format("a1"), "ALTER TABLE a1 DROP COLUMN email, ADD COLUMN secret INT DEFAULT 3"],
        "a1",
        {"phone": NULL, "secret": NULL},
        [],
    ),
    "a table that is renamed keeps its masks and gets those of its name": (
        [T.format("b1"), "RENAME TABLE b1 TO a2"],
        "a2",
        {"email": HASH, "phone": HASH},
        [],
    ),
    "a table that is renamed away": (
        [T.format("a1"), "RENAME TABLE a1 TO c"],
        "c",
        {"email": HASH, "phone": NULL},
        [],
    ),
    "a copy of a table": ([T.format("a1"), "CREATE TABLE c LIKE a1"], "c", {"phone": HASH}, []),
    "what identifies rows is not NULL": (
        ["CREATE TABLE k (secret INT, v INT, PRIMARY KEY (v, secret))"],
        "k",
        {"secret": HASH},
        ["column secret: it is part of the key and is masked with hash"],
    ),
    "what comes to identify rows": (
        ["CREATE TABLE k (secret INT NOT NULL, v INT)", "ALTER TABLE k ADD PRIMARY KEY (secret)"],
        "k",
        {"secret": HASH},
        ["column secret: it is part of the key and is masked with hash"],
    ),
    "a type in which values have the same text": (
        [T.format("b1"), "ALTER TABLE b1 MODIFY phone BIGINT UNSIGNED DEFAULT 6"],
        "b1",
        {"phone": HASH},
        [],
    ),
    "a type in which they may have another": (
        [T.format("b1"), "ALTER TABLE b1 MODIFY phone DECIMAL(10,2)", "ALTER TABLE b1 MODIFY phone DECIMAL(12,1)"],
        "b1",
        {"phone": HASH},
        ["column phone: older values were hashed as decimal(10,2), new ones as decimal(12,1)"],
    ),
    "a type of a column that is NULL": (
        [T.format("a1"), "ALTER TABLE a1 MODIFY phone DATE"],
        "a1",
        {"email": HASH, "phone": NULL},
        [],
    ),
    "partitions by what is masked": (
        [
            "CREATE TABLE p (id INT, secret INT) PARTITION BY RANGE (secret) (PARTITION p0 VALUES LESS THAN (77001), "
            "PARTITION p1 VALUES LESS THAN MAXVALUE)",
            "ALTER TABLE p TRUNCATE PARTITION p0",
            "ALTER TABLE p DROP PARTITION p0",
        ],
        "p",
        {"secret": NULL},
        ["a statement is not applied yet: see ddl_history", "a statement is not applied yet: see ddl_history"],
    ),
    "a statement that cannot be read": (
        [T.format("a1"), "ALTER TABLE a1 FROBNICATE email 'clear'"],
        "a1",
        {"email": HASH, "phone": NULL},
        ["a statement is not applied yet: see ddl_history"],
    ),
    "partitions that cannot be read": (
        [T.format("a1"), "ALTER TABLE a1 PARTITION BY NONSENSE('clear')"],
        "a1",
        {"email": HASH, "phone": NULL},
        [],
    ),
    "partitions of tables that mask other columns": (
        [
            "CREATE TABLE p (id INT, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5))",
            "CREATE TABLE q (id INT, secret INT)",
            "ALTER TABLE q RENAME COLUMN secret TO v",
            "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE q",
        ],
        "q",
        {"v": NULL},
        ["a statement is not applied yet: see ddl_history"],
    ),
    "a table made of a query": (
        [T.format("a1"), "CREATE TABLE a2 AS SELECT id, email FROM a1 WHERE email <> 'clear'"],
        "a2",
        {},
        ["a statement is not applied yet: see ddl_history"],
    ),
}
