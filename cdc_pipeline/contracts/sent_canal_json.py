"""Contracts of complete Canal-JSON messages, with the fields that decoding does not read.

They validate one message per shape: a table, the columns of its rows and the kind of change (`dialects.shapes`). All
messages of a shape have the same types, so one message stands for the others. Every rule here only warns, because decoding
does not need these fields. The models inherit the fields and rules of `contracts.ticdc` and `contracts.canal`.
"""

# No `from __future__ import annotations`: Pandera evaluates the annotations.
from typing import TYPE_CHECKING, Any

import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts import java_types
from cdc_pipeline.contracts.canal import CanalDdl, CanalNote, CanalRow, CanalStatement
from cdc_pipeline.contracts.canal_json import DDL_CLAUSE, FIELDS, MARK_CLAUSE
from cdc_pipeline.contracts.checks import warning
from cdc_pipeline.contracts.ticdc import TicdcDdl, TicdcRow, TicdcWatermark

if TYPE_CHECKING:  # mypy needs a class as annotation, Pandera the complete Spark type
    from pyspark.sql.types import MapType as _Codes
    from pyspark.sql.types import MapType as _Texts
else:
    _Texts = T.MapType(T.StringType(), T.StringType())
    _Codes = T.MapType(T.StringType(), T.IntegerType())

_MYSQL_TYPE, _SQL_TYPE = "MySQL Type field", "SQL Type field, Integer types"
_NAMES = "map_keys(get(coalesce(data, old), 0))"
_EARLY = "(coalesce(ts, 1) = 0)"


class Sent(pa.DataFrameModel):  # type: ignore[type-arg]
    """The fields that decoding does not read. A field of another JSON type is null."""

    id: T.LongType = pa.Field(nullable=True)
    mysql_type: _Texts = pa.Field(nullable=True, alias="mysqlType")
    sql_type: _Codes = pa.Field(nullable=True, alias="sqlType")
    value_kinds: _Texts = pa.Field(nullable=True, alias="valueKinds")
    """Column → the type of its value in the first row of `data`, as Spark's `schema_of_variant` names it. Derived."""


def _first_column(wrong: str) -> str:
    """SQL of the first column `name` of `mysqlType` that meets the condition."""
    return f"concat('column ', get(filter(map_keys(mysqlType), name -> {wrong}), 0))"


def _sql_type_rule(allowed: str) -> Any:
    """`allowed`: SQL of the codes that the column `name` may have."""
    wrong = f"NOT coalesce(array_contains({allowed}, sqlType[name]), true)"
    return warning(
        "sql_type_is_of_mysql_type",
        "each sqlType code fits the column's mysqlType and value",
        f"coalesce(NOT exists(map_keys(mysqlType), name -> {wrong}), true)",
        _SQL_TYPE,
        "sqlType",
        found=_first_column(wrong),
    )


class _RowTypes(Sent):
    mysql_type_is_map = warning(
        "mysql_type_is_map",
        "mysqlType is an object of strings",
        "mysqlType IS NOT NULL AND NOT exists(map_values(mysqlType), text -> text IS NULL)",
        _MYSQL_TYPE,
        "mysqlType",
    )
    mysql_type_fits_data = warning(
        "mysql_type_fits_data",
        "mysqlType has exactly the columns of data",
        f"coalesce(array_sort(map_keys(mysqlType)) = array_sort({_NAMES}), true)",
        _MYSQL_TYPE,
        "mysqlType",
    )
    sql_type_fits_data = warning(
        "sql_type_fits_data",
        "sqlType is an object of numbers with exactly the columns of data",
        f"coalesce(array_sort(map_keys(sqlType)) = array_sort({_NAMES}), false) "
        "AND NOT exists(map_values(sqlType), code -> code IS NULL)",
        _SQL_TYPE,
        "sqlType",
    )
    old_is_of_data = warning(
        "old_is_of_data",
        "old has columns of data only",
        "coalesce(size(array_except(map_keys(get(old, 0)), map_keys(get(data, 0)))) = 0, true)",
        FIELDS["clause"],
        "old",
    )
    values_are_texts = warning(
        "values_are_texts",
        "each value of data is a string or null",
        "coalesce(NOT exists(map_values(valueKinds), kind -> kind NOT IN ('STRING', 'VOID')), true)",
        "ticdc-facts §1, canal-facts 7",
        "data",
    )


class _NoTypes(Sent):
    types_are_of_rows = warning(
        "types_are_of_rows",
        "pkNames, sqlType and mysqlType are null; only row changes have them",
        "pkNames IS NULL AND mysqlType IS NULL AND sqlType IS NULL",
        DDL_CLAUSE,
    )


_ID = warning("id_is_zero", "id is 0", "coalesce(id = 0, false)", FIELDS["clause"], "id")
_COMMIT_TS_ALONE = warning(
    "watermark_ts_is_of_watermarks",
    "_tidb of a DML or DDL event has no watermarkTs",
    "watermarkTs IS NULL",
    "TiDB extension field",
    "watermarkTs",
)


class TicdcRowSent(_RowTypes, TicdcRow):
    """A row change of TiCDC."""

    id_is_zero = _ID
    watermark_ts_is_of_watermarks = _COMMIT_TS_ALONE
    pk_names_is_list = warning(
        "pk_names_is_list",
        "pkNames is an array, empty for a table without a primary key",
        "pkNames IS NOT NULL",
        FIELDS["clause"],
        "pkNames",
    )
    sql_type_is_of_mysql_type = _sql_type_rule(java_types.ticdc_codes("mysqlType[name]", "get(data, 0)[name]", _EARLY))


class TicdcDdlSent(_NoTypes, TicdcDdl):
    """A DDL event of TiCDC."""

    id_is_zero = _ID
    watermark_ts_is_of_watermarks = _COMMIT_TS_ALONE


class TicdcWatermarkSent(_NoTypes, TicdcWatermark):
    """A WATERMARK event."""

    id_is_zero = _ID
    watermark_is_of_no_table = warning(
        "watermark_is_of_no_table",
        "database, table and sql are empty in a WATERMARK event",
        "coalesce(database, '') = '' AND coalesce(table, '') = '' AND coalesce(sql, '') = ''",
        MARK_CLAUSE,
    )
    watermark_has_its_ts_alone = warning(
        "watermark_has_its_ts_alone", "_tidb has watermarkTs only", "commitTs IS NULL", MARK_CLAUSE, "commitTs"
    )


class CanalRowSent(_RowTypes, CanalRow):
    """Row changes of Canal. Of several rows only the first is validated against the types."""

    sql_type_is_of_mysql_type = _sql_type_rule(java_types.canal_codes("mysqlType[name]"))


class CanalDdlSent(_NoTypes, CanalDdl):
    """A DDL event of Canal."""


class CanalStatementSent(_NoTypes, CanalStatement):
    """A row change in statement format."""


class CanalNoteSent(_NoTypes, CanalNote):
    """A message without rows."""
