"""Small Delta tables in local folders, which the driver rewrites as a whole: Arrow has the rows, delta-rs commits them.

A MERGE into a table of one file takes 800 ms of CPU, most of it for planning; a rewrite takes 20. delta-rs writes no
checksum file beside its commits, so Spark would need a job to read the state of such a table: the driver asks delta-rs.
See docs/adr/0016.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import compute as pc
from pyarrow import parquet as pq

from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.delta import Commit, TableState, commit_properties, state_of
from cdc_pipeline.lake.delta_log import note_commit_of_delta_rs
from cdc_pipeline.lake.faults import damaged_table
from cdc_pipeline.lake.file_statistics import open_local_table
from cdc_pipeline.lake.handles import transaction_version
from cdc_pipeline.lake.store import read_data_file, write_new_file

MAX_BYTES = 4 * 2**20
"""Size of the files up to which a table is small."""
_MAX_FILES = 16
_MAX_ROWS = 200_000
_FEATURES = frozenset({"appendOnly", "deletionVectors", "invariants", "timestampNtz"})
"""Features of Delta whose tables are read and written here; column mapping and type widening are not among them."""


@dataclass(frozen=True)
class SmallTable:
    """A version of a small table."""

    path: str
    _opened: DeltaTable
    _files: pa.Table
    """`get_add_actions`."""

    @property
    def state(self) -> TableState:
        return state_of(self._opened)

    @cached_property
    def rows(self) -> pa.Table:
        """All rows, in the table's columns. Raises LakeError if a file is missing or damaged."""
        schema = pa.schema(self._opened.schema().to_arrow())
        schema = pa.schema([field.with_nullable(True) for field in schema])
        names = map(unquote, self._files["path"].to_pylist())
        sizes = self._files["size_bytes"].to_pylist()
        parts = [self._read(name, size, schema, self._masks.get(name)) for name, size in zip(names, sizes, strict=True)]
        return pa.concat_tables([schema.empty_table(), *parts])

    def count_rows(self, without: str | None = None) -> int:
        """The number of rows, without those for which the boolean column `without` is true."""
        if without is None and not self._masks:
            return sum(self._files["num_records"].to_pylist())
        return len(self.rows) - (pc.sum(self.rows[without]).as_py() or 0 if without else 0)

    @cached_property
    def _masks(self) -> dict[str, pa.Array]:
        """File → which of its rows are left, for the files with a deletion vector."""
        if "deletionVectors" not in (self._opened.protocol().reader_features or ()):
            return {}
        found = pa.table(self._opened.deletion_vectors())
        names = [unquote(uri).rpartition("/")[2] for uri in found["filepath"].to_pylist()]
        return dict(zip(names, found["selection_vector"], strict=True))

    def _read(self, name: str, size: int, schema: pa.Schema, mask: pa.Scalar | None) -> pa.Table:
        try:
            content = read_data_file(self.path, name, size)
            rows = pq.read_table(pa.BufferReader(content), coerce_int96_timestamp_unit="us")
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise damaged_table(self.path, error) from error
        if mask is not None:
            rows = rows.filter(mask.values)
        # a column that was added after the file was written is NULL
        columns = [
            rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)

    def replace(self, rows: pa.Table, commit: Commit) -> None:
        """Replaces all rows in one commit, unless the table already contains it.

        Raises TransientError if another process has changed its rows since it was opened.
        """
        self._opened.update_incremental()
        if (transaction_version(self._opened, commit.app_id) or 0) >= commit.version:
            return
        changed = TransientError(f"{self.path}: another process has changed the table. Run again")
        if pa.table(self._opened.get_add_actions())["path"] != self._files["path"]:
            raise changed
        now_ms, added = time.time_ns() // 1_000_000, list[AddAction | RemoveAction]()
        file, content = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet", pa.BufferOutputStream()
        properties = commit_properties(commit, most_retries=0)
        if len(rows):
            pq.write_table(rows, content, compression="zstd")
            stored = content.getvalue()
            write_new_file(self.path, file, stored.to_pybytes())
            # no bounds: delta-rs and Arrow have none for some types that Spark would trust, and one small file is read
            stats = json.dumps({"numRecords": len(rows)})
            added.append(AddAction(file, stored.size, {}, now_ms, True, stats))
        # A file that is not committed remains until VACUUM: an error may come from what delta-rs does after its commit
        try:
            self._opened.create_write_transaction(
                added, "overwrite", self._opened.schema(), commit_properties=properties
            )
        except CommitFailedError as error:
            raise changed from error
        note_commit_of_delta_rs(self.path)


def open_small_table(path: str) -> SmallTable | None:
    """The newest version of the table; None if it is not small, not in a local folder, has a feature that is not among
    those read here, or does not exist."""
    opened = open_local_table(path)
    if opened is None:
        return None
    protocol = opened.protocol()
    is_known = protocol.min_writer_version <= 2 or (
        protocol.min_writer_version == 7 and _FEATURES.issuperset(protocol.writer_features or ())
    )
    if not is_known or opened.metadata().partition_columns:
        return None
    files = pa.table(opened.get_add_actions())
    records = files["num_records"].to_pylist()
    fits = len(records) <= _MAX_FILES and sum(files["size_bytes"].to_pylist()) <= MAX_BYTES
    if (
        not fits
        or None in records
        or sum(records) > _MAX_ROWS
        or any(":" in name for name in files["path"].to_pylist())
    ):
        return None
    return SmallTable(path, opened, files)
