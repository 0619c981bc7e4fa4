"""Plugin of dbt-duckdb: loads DuckDB's Delta extension from the package duckdb-extension-delta, without a download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb_extension_delta
from dbt.adapters.duckdb.plugins import BasePlugin

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Plugin(BasePlugin):
    def configure_connection(self, conn: DuckDBPyConnection) -> None:
        (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
        conn.load_extension(str(extension))
