"""`list_files` leaves out files that cannot have matching rows, and no others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_pipeline.lake.file_statistics import Condition, list_files, list_own_files

_FILES: list[list[tuple[int | None, str | None]]] = [
    [(1, "a"), (3, "b")],
    [(5, "c")],
    [(None, None)],
    [(None, "z"), (9, "z")],
]
_SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    path = str(tmp_path_factory.mktemp("table"))
    for rows in _FILES:
        write_deltalake(path, pa.table(list(zip(*rows, strict=True)), schema=_SCHEMA), mode="append")
    return DeltaTable(path)


def _found(table: DeltaTable, *all_of: Condition, any_of: list[Condition] | None = None) -> list[int]:
    """The numbers of the files found."""
    files = {row["path"] for row in list_files(table, all_of, any_of or []).to_pylist()}
    return [number for number, row in enumerate(_in_order(table)) if row in files]


def _in_order(table: DeltaTable) -> list[str]:
    added = pa.table(table.get_add_actions(flatten=True)).sort_by("modification_time")
    return [str(path) for path in added["path"].to_pylist()]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("n", "=", 2), [0, 2]),
        (("n", "=", 9), [2, 3]),
        (("n", ">", 3), [1, 2, 3]),
        (("n", ">=", 3), [0, 1, 2, 3]),
        (("n", "<=", 4), [0, 2]),
        (("n", "<=", 0), [2]),
        # texts and lengths are not compared
        (("text", "=", "a"), [0, 1, 2, 3]),
        (("n", "longer than", 100), [0, 1, 2, 3]),
        (("unknown", "=", 1), [0, 1, 2, 3]),
    ],
)
def test_one_condition(table: DeltaTable, condition: Condition, expected: list[int]) -> None:
    """File 2 has only NULL, so no bounds: it may have anything."""
    assert _found(table, condition) == expected


def test_several_conditions(table: DeltaTable) -> None:
    assert _found(table) == [0, 1, 2, 3]
    assert _found(table, ("n", ">", 1), ("n", "<=", 5)) == [0, 1, 2]
    assert _found(table, any_of=[("n", ">", 8), ("n", "<=", 1)]) == [0, 2, 3]
    assert _found(table, ("n", "<=", 5), any_of=[("n", ">", 8), ("unknown", "=", 1)]) == [0, 1, 2]


def test_bounds_of_long_numbers_are_exact(tmp_path: Path) -> None:
    """A TSO has 59 bits, a double 53."""
    tso = 470_613_987_174_645_761
    write_deltalake(str(tmp_path), pa.table({"n": [tso]}))
    found = [list_files(DeltaTable(str(tmp_path)), [("n", ">", bound)]).num_rows for bound in (tso - 1, tso)]
    assert found == [1, 0]


def test_a_table_without_features(table: DeltaTable) -> None:
    assert list_own_files(table) is not None
