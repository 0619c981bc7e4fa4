"""The checks `contract` and `field_rules`: rules for new rows of the decoded tables and for messages as sent.

`contract` validates with Pandera what decoding enforces. `field_rules` counts what accepted messages break, over all runs,
in `<lake>/<pipeline>/field_rules.json`. That file is a cache: if it is missing or damaged, each shape of messages is
validated again. Lakes without `has_files` have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.checks.results import check_result
from cdc_pipeline.contracts.rules import Breach, breaches_of_counts, find_breaches, rule_counts, wrong_types
from cdc_pipeline.contracts.tables import TABLES
from cdc_pipeline.dialects.decode import COMPLETE_CONTRACTS, DialectName
from cdc_pipeline.dialects.senders import unnumbered_topics, with_senders
from cdc_pipeline.dialects.shapes import Shape, complete_messages, first_place, messages_at, shape_number
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.control_tables import read_frame
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import CONTROL_TABLES, LakePaths
from cdc_pipeline.lake.store import read_file, write_file
from cdc_pipeline.mysql.ddl.statements import BASELINE_EVENT
from cdc_pipeline.positions import BatchPosition
from cdc_pipeline.spark.small_frames import is_small, small_query
from cdc_pipeline.stored_json import StoredJson

CONTRACT = "contract"
MOST_ROWS = 100_000
"""Up to this number all new rows are validated, of more a sample by position."""
_SAMPLE_BUCKETS = 1_000_000


@dataclass(frozen=True)
class TableValidation:
    """The result of validating the rows of some batches in a table."""

    table: str
    rows: int = 0
    """Number of rows, an upper bound if only a sample was validated."""
    validated: int = 0
    """Number of validated rows."""
    errors: tuple[Breach, ...] = ()
    """Rules that the decoder should have enforced."""
    warnings: tuple[Breach, ...] = ()
    """Rules that accepted rows may break."""
    shapes: tuple[Shape, ...] = ()


def validate_table(lake: Lake, table: str, batches: Sequence[int], count: int) -> TableValidation:
    """Validates the rows of the batches. `count` is an upper bound of their number."""
    if not count:
        return TableValidation(table)
    if is_small(count) and table in CONTROL_TABLES:
        rows = read_frame(lake, table, ("batch_id", ">=", min(batches)), ("batch_id", "<=", max(batches)))
    else:
        rows = lake.read_batches(table, min(batches), max(batches))
    if table == "ddl_history":
        rows = rows.where(F.col("kind") != BASELINE_EVENT)  # no record of the batch
    # a single task needs no shuffle
    sample = _sample(rows, count).select(*_columns(table, rows.columns)).coalesce(1 if is_small(count) else 2)
    # Rules are cheap per row and expensive to compile: interpreted, 44,000 rows took two thirds of the time.
    with small_query(lake.spark, count // 5):
        validated, found, shapes = _validate(table, sample)
    errors, warnings = (tuple(breach for breach in found if breach.warn == warn) for warn in (False, True))
    total = validated if count <= MOST_ROWS else count
    return TableValidation(table, total, validated, errors, warnings, shapes)


def _validate(table: str, rows: DataFrame) -> tuple[int, tuple[Breach, ...], tuple[Shape, ...]]:
    """The number of rows, the broken rules, and the shapes of the messages: one query, unless a rule is broken."""
    model = TABLES[table]
    if wrong := wrong_types(rows, model):
        return wrong[0].count, wrong, ()
    counts = F.count("*").alias("rows"), first_place().alias("place"), *rule_counts(model)
    groups = rows.groupBy(shape_number(table).alias("shape")).agg(*counts).collect()
    shapes = (Shape(group["shape"], tuple(group["place"])) for group in groups if group["shape"] is not None)
    found = breaches_of_counts(rows, model, groups) if groups else ()
    return sum(group["rows"] for group in groups), found, tuple(shapes)


def contract_result(key: dg.AssetKey, *validations: TableValidation) -> dg.AssetCheckResult:
    """Fails if rows break a rule that the decoder should have enforced. Blocks downstream assets.

    `validations`: of different batches of one table.
    """
    errors = [breach for validation in validations for breach in validation.errors]
    return check_result(
        CONTRACT,
        key,
        [
            f"{validations[0].table} has {breach.count} rows that break {breach.rule}"
            + "".join(f", for example {example}" for example in breach.examples[:1])
            for breach in errors
        ],
        "The decoder should have rejected these records: this is a bug in cdc_pipeline, report it with the records' "
        "bytes from raw_topic_snapshot. Downstream assets were not updated",
        {
            "rows": sum(validation.rows for validation in validations),
            "validated": sum(validation.validated for validation in validations),
            **{
                breach.rule: f"{breach.count} rows, expected: {breach.expected}; for example {', '.join(breach.examples)}"
                for breach in errors
            },
        },
        is_error=True,
    )


def _columns(table: str, existing: Sequence[str]) -> list[str]:
    """The columns of the contract, and `type`, which is part of the shape of a DDL message."""
    return [*TABLES[table].to_schema().columns, *(["type"] if "type" in existing else [])]


def _sample(rows: DataFrame, count: int) -> DataFrame:
    if count <= MOST_ROWS:
        return rows
    position_hash = F.xxhash64("topic", "partition", "offset")
    return rows.where(F.pmod(position_hash, F.lit(_SAMPLE_BUCKETS)) < int(_SAMPLE_BUCKETS * MOST_ROWS / count))


_FILE = "field_rules.json"
_MOST_SHAPES, _MOST_PLACES = 20_000, 5


@dataclass(frozen=True)
class RuleWarning:
    """A rule that accepted messages break. The fields are stored by name."""

    rule: str
    expected: str
    count: int
    """Messages over all batches."""
    places: tuple[str, ...]
    """Example positions."""
    last_batch: int
    """Newest batch with such a message."""
    found: str | None = None
    """Content of one example, if the rule shows it."""


@dataclass(frozen=True)
class FieldNotes:
    """The fields are stored by name."""

    shapes: tuple[int, ...] = ()
    """Numbers of the validated shapes, newest last."""
    warned: tuple[RuleWarning, ...] = ()

    def extended(self, batch: int, shapes: Iterable[int], found: Iterable[Breach]) -> FieldNotes:
        """The notes with the result of another run. Counts are summed by rule."""
        rules = {warned.rule: warned for warned in self.warned}
        for breach in found:
            before = rules.get(breach.rule, RuleWarning(breach.rule, breach.expected, 0, (), batch))
            rules[breach.rule] = replace(
                before,
                count=before.count + breach.count,
                places=(*before.places, *breach.examples)[:_MOST_PLACES],
                last_batch=batch,
                found=before.found or breach.found,
            )
        known = tuple(dict.fromkeys((*self.shapes, *shapes)))[-_MOST_SHAPES:]
        return FieldNotes(known, tuple(rules[name] for name in sorted(rules)))


NO_NOTES = FieldNotes()
_STORED = StoredJson(FieldNotes)


def read_notes(paths: LakePaths) -> FieldNotes:
    try:
        stored = read_file(paths.home, _FILE) if paths.has_files else None
        return NO_NOTES if stored is None else _STORED.from_json(stored.decode())
    except (OSError, ValueError, LakeError):
        return NO_NOTES


def write_notes(paths: LakePaths, notes: FieldNotes) -> None:
    """Replaces the file atomically."""
    if paths.has_files:
        write_file(paths.home, _FILE, _STORED.to_json(notes))


FIELD_RULES = "field_rules"
MOST_SHAPES = 500
"""Maximum number of new shapes per run. The others are validated with a later message of the same shape."""
_VALIDATED_PER_ROW = {"tso_is_es"}
"""Rules that `validate_table` checks for each row. Checking them in messages too would count them twice."""


def field_rules_result(
    lake: Lake, validations: Sequence[TableValidation], batches: Sequence[int], dialect: DialectName, key: dg.AssetKey
) -> dg.AssetCheckResult:
    """Warns if accepted messages of this or an earlier run break a rule.

    One message per shape is validated. Rules in `_VALIDATED_PER_ROW` are checked for every row.
    """
    notes = read_notes(lake.paths)
    if batches:
        known = set(notes.shapes)
        new = {
            shape.number: shape.position
            for validation in validations
            for shape in validation.shapes
            if shape.number not in known
        }
        selected = dict(list(new.items())[:MOST_SHAPES])
        found = [breach for validation in validations for breach in validation.warnings]
        found += warnings_at(lake, selected.values(), dialect) if selected else []
        before, notes = notes, notes.extended(max(batches), selected, found)
        if notes.shapes != before.shapes or found:
            write_notes(lake.paths, notes)
    return check_result(
        FIELD_RULES,
        key,
        [f"{one.rule}: {one.count}, for example {one.places[0]}" for one in notes.warned],
        "These messages were accepted. `cdc-pipeline docs dialects all field rules` lists the rules with the clause of each "
        "document",
        {
            "shapes": len(notes.shapes),
            **{
                warned.rule: f"{warned.count}, expected: {warned.expected}; for example {', '.join(warned.places)}"
                + (f" ({warned.found})" if warned.found else "")
                + f"; last in batch {warned.last_batch}"
                for warned in notes.warned
            },
        },
    )


def warnings_at(lake: Lake, places: Iterable[BatchPosition], dialect: DialectName) -> list[Breach]:
    """Validates the original messages at these positions and returns the broken rules that are warnings."""
    raw = lake.read("raw_topic_snapshot")
    with small_query(lake.spark, 0), messages_at(raw, places) as messages:
        frame = complete_messages(with_senders(messages, unnumbered_topics(lake)), dialect).persist()
        try:
            forms = [row["form"] for row in frame.select("form").distinct().collect()]
            found: list[Breach] = []
            for form in sorted(name for name in forms if name in COMPLETE_CONTRACTS):
                contract = COMPLETE_CONTRACTS[form]
                columns = ["topic", "partition", "offset", *contract.to_schema().columns]
                of_form = frame.where(frame["form"] == form).select(*columns)
                found += [
                    breach
                    for breach in find_breaches(of_form, contract)
                    if breach.warn and breach.rule not in _VALIDATED_PER_ROW
                ]
        finally:
            frame.unpersist()
    return found
