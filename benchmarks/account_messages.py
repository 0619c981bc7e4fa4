"""Messages of the table `shop.accounts` from Python, for topics that a benchmark produces to while it runs."""

from __future__ import annotations

import itertools
import json
import time

from benchmarks.topics import CREATE
from cdc_pipeline.dialects.unified import TSO_SHIFT

_TYPES = {"id": ("bigint", -5), "owner": ("varchar", 12), "balance": ("decimal", 3), "updated_at": ("datetime", 93)}
_COUNTER = itertools.count()


def current_tso() -> int:
    """A TSO of now, ascending also within a millisecond."""
    return (int(time.time() * 1000) << TSO_SHIFT) + next(_COUNTER) % (1 << TSO_SHIFT)


def account_row(key: int, balance: float) -> dict[str, str]:
    """A row of the table, as text."""
    return {
        "id": str(key),
        "owner": f"o-{key:06}",
        "balance": f"{balance:.2f}",
        "updated_at": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
    }


def row_change(tso: int, kind: str, data: dict[str, str], old: dict[str, str] | None = None) -> bytes:
    """An INSERT, UPDATE or DELETE message. `old`: the before image of an UPDATE."""
    return _message(
        tso,
        table="accounts",
        pkNames=["id"],
        type=kind,
        sqlType={name: code for name, (_, code) in _TYPES.items()},
        mysqlType={name: mysql_type for name, (mysql_type, _) in _TYPES.items()},
        old=None if old is None else [old],
        data=[data],
        _tidb={"commitTs": tso},
    )


def create_table(tso: int) -> bytes:
    return _message(tso, table="accounts", isDdl=True, type="CREATE", sql=CREATE, _tidb={"commitTs": tso})


def watermark(tso: int) -> bytes:
    return _message(tso, database="", type="TIDB_WATERMARK", _tidb={"watermarkTs": tso})


def _message(tso: int, **fields: object) -> bytes:
    found = {
        "id": 0,
        "database": "shop",
        "table": "",
        "pkNames": None,
        "isDdl": False,
        "type": "",
        "es": tso >> TSO_SHIFT,
        "ts": int(time.time() * 1000),
        "sql": "",
        "sqlType": None,
        "mysqlType": None,
        "data": None,
        "old": None,
        **fields,
    }
    return json.dumps(found).encode()
