"""Canal-JSON as it was sent: what is looked at once per shape of messages, in one message of each.

A shape is a table, the columns of its rows and the kind of change (`dialects.shapes`). Types are the same in all its
messages, and so is what an encoder writes where there is nothing to say. Every rule here is a warning: one message
stands for others, and none of them is needed to read the rows. The models have all fields of `contracts.canal_json` and
their rules beside their own.
"""

# No `from __future__ import annotations` here: Pandera evaluates the annotations, which are values.
from typing import TYPE_CHECKING, Any

import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts import java_types
from cdc_pipeline.contracts.canal import CanalDdl, CanalNote, CanalRow, CanalStatement
from cdc_pipeline.contracts.canal_json import DDL_CLAUSE, FIELDS, MARK_CLAUSE
from cdc_pipeline.contracts.checks import warning
from cdc_pipeline.contracts.ticdc import TicdcDdl, TicdcRow, TicdcWatermark

if TYPE_CHECKING:  # to mypy an annotation must be a class; Pandera wants the whole type
    from pyspark.sql.types import MapType as _Codes
    from pyspark.sql.types import MapType as _Texts
else:
    _Texts = T.MapType(T.StringType(), T.StringType())
    _Codes = T.MapType(T.StringType(), T.IntegerType())

_MYSQL_TYPE, _SQL_TYPE = "MySQL Type field", "SQL Type field, Integer types"
_NAMES = "map_keys(get(coalesce(data, old), 0))"
_EARLY = "(coalesce(ts, 1) = 0)"


class Sent(pa.DataFrameModel):  # type: ignore[type-arg]
    """The fields that are not read of each message. A field of another type is null.

    `valueKinds` is made of the first row of `data`: the JSON type of each column's value, as Spark's VARIANT has it.
    """

    id: T.LongType = pa.Field(nullable=True)
    mysql_type: _Texts = pa.Field(nullable=True, alias="mysqlType")
    sql_type: _Codes = pa.Field(nullable=True, alias="sqlType")
    value_kinds: _Texts = pa.Field(nullable=True, alias="valueKinds")


def _first_column(wrong: str) -> str:
    """SQL of the name of the first column that is wrong in this way."""
    return f"concat('column ', get(filter(map_keys(mysqlType), name -> {wrong}), 0))"


def _codes(allowed: str) -> Any:
    wrong = f"NOT coalesce(array_contains({allowed}, sqlType[name]), true)"
    return warning(
        "sql_type_is_of_mysql_type",
        "sqlType is the Java type of the column's MySQL type and value",
        f"coalesce(NOT exists(map_keys(mysqlType), name -> {wrong}), true)",
        _SQL_TYPE,
        "sqlType",
        found=_first_column(wrong),
    )


class _RowTypes(Sent):
    """What the types of any row change must be."""

    mysql_type_is_map = warning(
        "mysql_type_is_map",
        "mysqlType is a map of texts",
        "mysqlType IS NOT NULL AND NOT exists(map_values(mysqlType), text -> text IS NULL)",
        _MYSQL_TYPE,
        "mysqlType",
    )
    mysql_type_fits_data = warning(
        "mysql_type_fits_data",
        "mysqlType names the columns of data, and no others",
        f"coalesce(array_sort(map_keys(mysqlType)) = array_sort({_NAMES}), true)",
        _MYSQL_TYPE,
        "mysqlType",
    )
    sql_type_fits_data = warning(
        "sql_type_fits_data",
        "sqlType is a map of numbers that names the columns of data, and no others",
        f"coalesce(array_sort(map_keys(sqlType)) = array_sort({_NAMES}), false) "
        "AND NOT exists(map_values(sqlType), code -> code IS NULL)",
        _SQL_TYPE,
        "sqlType",
    )
    old_is_of_data = warning(
        "old_is_of_data",
        "old names columns of data",
        "coalesce(size(array_except(map_keys(get(old, 0)), map_keys(get(data, 0)))) = 0, true)",
        FIELDS["clause"],
        "old",
    )
    values_are_texts = warning(
        "values_are_texts",
        "each value of data is a text or null",
        "coalesce(NOT exists(map_values(valueKinds), kind -> kind NOT IN ('STRING', 'VOID')), true)",
        "ticdc-facts §1, canal-facts 7",
        "data",
    )


class _NoTypes(Sent):
    """What has no rows has no types of columns, and no key."""

    types_are_of_rows = warning(
        "types_are_of_rows",
        "pkNames, sqlType and mysqlType are null: only a row change has them",
        "pkNames IS NULL AND mysqlType IS NULL AND sqlType IS NULL",
        DDL_CLAUSE,
    )


_ID = warning("id_is_zero", "id is 0 in TiCDC", "coalesce(id = 0, false)", FIELDS["clause"], "id")
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
        "pk_names_is_list", "pkNames is a list, empty without a key", "pkNames IS NOT NULL", FIELDS["clause"], "pkNames"
    )
    sql_type_is_of_mysql_type = _codes(java_types.allowed("mysqlType[name]", "get(data, 0)[name]", _EARLY))


class TicdcDdlSent(_NoTypes, TicdcDdl):
    """A DDL event of TiCDC."""

    id_is_zero = _ID
    watermark_ts_is_of_watermarks = _COMMIT_TS_ALONE


class TicdcWatermarkSent(_NoTypes, TicdcWatermark):
    """A WATERMARK event."""

    id_is_zero = _ID
    watermark_is_of_no_table = warning(
        "watermark_is_of_no_table",
        "database, table and sql are empty in a watermark",
        "coalesce(database, '') = '' AND coalesce(table, '') = '' AND coalesce(sql, '') = ''",
        MARK_CLAUSE,
    )
    watermark_has_its_ts_alone = warning(
        "watermark_has_its_ts_alone", "_tidb has watermarkTs alone", "commitTs IS NULL", MARK_CLAUSE, "commitTs"
    )


class CanalRowSent(_RowTypes, CanalRow):
    """Row changes of Canal; of several rows the types of the first are looked at."""

    sql_type_is_of_mysql_type = _codes(java_types.allowed_of_canal("mysqlType[name]"))


class CanalDdlSent(_NoTypes, CanalDdl):
    """A DDL event of Canal."""


class CanalStatementSent(_NoTypes, CanalStatement):
    """A change that was logged as its statement."""


class CanalNoteSent(_NoTypes, CanalNote):
    """What changes no row."""
