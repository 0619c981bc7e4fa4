"""A catalog in memory, as strict as Hive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_pipeline.catalogs.entries import OWN_PARAMETERS, Definition, Entry


@dataclass
class MemoryCatalog:
    """Also its own settings: `connect` returns it, or raises `error`."""

    schemas: dict[str, Mapping[str, str]] = field(default_factory=dict)
    tables: dict[str, dict[str, Definition]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    """Each call that writes."""
    refused: str = ""
    """The name of an entry that cannot be written."""
    error: Exception | None = None
    closed: int = 0

    def __str__(self) -> str:
        return "memory"

    def connect(self, spark: Any) -> MemoryCatalog:
        if self.error is not None:
            raise self.error
        return self

    def databases(self) -> dict[str, Mapping[str, str]]:
        return dict(self.schemas)

    def create_database(self, name: str, parameters: Mapping[str, str], location: str) -> None:
        assert name not in self.schemas
        self.calls.append(f"create {name}")
        self.schemas[name], self.tables[name] = parameters, {}

    def alter_database(self, name: str, parameters: Mapping[str, str], location: str) -> None:
        assert name in self.schemas
        self.calls.append(f"alter {name}")
        self.schemas[name] = parameters

    def drop_database(self, name: str) -> None:
        assert self.tables.pop(name) == {}
        self.calls.append(f"drop {name}")
        del self.schemas[name]

    def entries(self, database: str) -> list[Entry]:
        return [
            Entry(name, {key: value for key, value in found.parameters.items() if key in OWN_PARAMETERS})
            for name, found in self.tables[database].items()
        ]

    def create(self, database: str, entry: Definition) -> None:
        assert entry.name not in self.tables[database]
        self._write(f"create {database}.{entry.name}")
        self.tables[database][entry.name] = entry

    def alter(self, database: str, name: str, entry: Definition) -> None:
        self._write(f"alter {database}.{name}" + ("" if name == entry.name else f" to {entry.name}"))
        del self.tables[database][name]
        assert entry.name not in self.tables[database]
        self.tables[database][entry.name] = entry

    def drop(self, database: str, name: str) -> None:
        self._write(f"drop {database}.{name}")
        del self.tables[database][name]

    def close(self) -> None:
        self.closed += 1

    def _write(self, call: str) -> None:
        if self.refused and self.refused in call:
            raise RuntimeError(f"{self.refused} is refused\nby a test")
        self.calls.append(call)
