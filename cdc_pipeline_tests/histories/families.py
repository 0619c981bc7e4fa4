"""Tables whose foreign keys change rows: histories with the messages of these changes, as of TiDB and MySQL 9.6, or without
them, as of earlier servers (capture `world-canal-foreign-key-cascade`).

Not generated, because the stream does not show it (docs/ddl.md): keys that change, with DataWorks and an earlier server.
"""

from __future__ import annotations

from dataclasses import replace

from cdc_pipeline_tests.histories.choices import Choices, Seeded
from cdc_pipeline_tests.histories.clock import Clock
from cdc_pipeline_tests.histories.ddl import CreateTable, TruncateTable
from cdc_pipeline_tests.histories.history import History, drawn_settings, history_of_upstream
from cdc_pipeline_tests.histories.shapes import Name, Row, Table
from cdc_pipeline_tests.histories.upstream import START_TSO, TSO_SHIFT, OpenTransaction, Transaction, Upstream

_PARENTS = {"parent": "", "child": "parent", "other": "parent", "grand": "child"}
"""Table → the table that its column `ref` references."""
_COLUMNS = (("id", "int"), ("ref", "int"), ("note", "varchar(20)"))


class _Family:
    """`logged`: the binlog has what the foreign keys change."""

    def __init__(self, choices: Choices, database: str, *, logged: bool) -> None:
        self.logged = logged
        self.actions = {
            name: [choices.pick(("CASCADE", "SET NULL")) for _ in ("DELETE", "UPDATE")] for name in _PARENTS
        }
        self.tables = {
            name: Table(database, name, _COLUMNS, ("id",), constraints=self._key(name, parent))
            for name, parent in _PARENTS.items()
        }

    def _key(self, name: str, parent: str) -> tuple[str, ...]:
        words = f"CONSTRAINT `{name}_of` FOREIGN KEY (`ref`) REFERENCES `{parent}` (`id`) ON DELETE {{}} ON UPDATE {{}}"
        return (words.format(*self.actions[name]),) if parent else ()

    def followers(self, name: str) -> set[Name]:
        """The table, and those whose rows follow its own."""
        found = {self.tables[name].full_name}
        return found.union(*map(self.followers, self._children(name))) if "CASCADE" in self.actions[name] else found

    def change(self, transaction: OpenTransaction, choices: Choices, *, moves: bool) -> None:
        """A random statement of the application, if it applies. `moves`: keys may change."""
        name = choices.pick(list(_PARENTS))
        rows = transaction.rows(self.tables[name])
        free = sorted({*"12345678"} - {row["id"] for row in rows.values() if row["id"] is not None})
        parent = self.tables.get(_PARENTS[name])
        known = [row["id"] for row in transaction.rows(parent).values()] if parent else []
        written: Row = {"ref": choices.pick([*known, *known, None]), "note": choices.pick(("a", "b", "c", None))}
        kind = choices.pick(("insert", "insert", "insert", "update", "delete", "move", "replace"))
        if kind == "insert" and free:
            transaction.insert(self.tables[name], [{"id": choices.pick(free), **written}])
        elif rows and kind != "insert":
            number = choices.pick(list(rows))
            row = rows[number]
            if kind == "update":
                self._write(transaction, name, number, row | written)
            elif kind == "move" and moves and free:
                self._write(transaction, name, number, row | {"id": choices.pick(free)})
            elif kind != "move":
                self._write(transaction, name, number, None)
            if kind == "replace":
                transaction.insert(self.tables[name], [row])

    def _write(
        self, transaction: OpenTransaction, name: str, number: int, new: Row | None, *, below: bool = False
    ) -> None:
        """Updates or deletes a row, and what references it. `below`: a foreign key does that."""
        table, key = self.tables[name], transaction.rows(self.tables[name])[number]["id"]
        if new is None:
            transaction.delete(table, [number], hidden=below and not self.logged)
        else:
            transaction.update(table, number, new, hidden=below and not self.logged)
        new_key = new and new["id"]
        for child in self._children(name) if new_key != key else ():
            for own, row in list(transaction.rows(self.tables[child]).items()):
                cascades = self.actions[child][new is not None] == "CASCADE"
                changed = None if new is None and cascades else row | {"ref": new_key if cascades else None}
                if row["ref"] == key:
                    self._write(transaction, child, own, changed, below=True)

    def _children(self, name: str) -> list[str]:
        return [child for child, parent in _PARENTS.items() if parent == name]


def family_history(seed: int, mode: str, *, logged: bool, ambiguous: bool = True) -> tuple[History, set[Name]]:
    """A history of a family, and the tables that lack changes in its stream or follow one that does."""
    choices, upstream, prefix = Seeded(seed), Upstream(), f"h{seed}"
    drawn = drawn_settings(choices, mode, seed=seed, complete=True, ddl=False, ambiguous=ambiguous)
    settings = replace(drawn, ddl=0.1, slices=max(2, drawn.slices))
    family = _Family(choices, f"{prefix}_a", logged=logged)
    for number, table in enumerate(family.tables.values()):
        upstream.execute(CreateTable(table), START_TSO + ((5 + number) * 1000 + 125 << TSO_SHIFT))
    clock = Clock(choices, own_ms=mode == "default" and settings.dispatcher != "table", apart=settings.ddl_apart)
    for _ in range(20):
        if choices.chance(0.05):  # of tables that no other one references
            upstream.execute(TruncateTable(family.tables[choices.pick(("other", "grand"))]), clock.next_of_ddl())
        transaction = upstream.begin(clock.next())
        for _ in range(choices.integer(1, 3)):
            family.change(transaction, choices, moves=logged or mode != "dataworks")
        transaction.commit()
    transactions = [event for event in upstream.events if isinstance(event, Transaction)]
    hidden = {change.table.name for event in transactions for change in event.statements if change.hidden}
    lacking = {name for table in hidden for name in family.followers(table)}
    return history_of_upstream(upstream, choices, settings, prefix), lacking
