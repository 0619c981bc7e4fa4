from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.catalogs.entries import MIRROR_ID, NAME, PATH, Definition, Entry
from cdc_pipeline.catalogs.reconcile import plan_actions, reconcile
from cdc_pipeline_tests.support.memory_catalog import MemoryCatalog

_OWNER = {"cdc.pipeline": "shop", "cdc.lake": "/lake/shop"}
_OTHERS = {**_OWNER, "cdc.lake": "/copy/shop"}


def _entry(name: str, mirror_id: str, path: str = "p", owner: dict[str, str] = _OWNER) -> Entry:
    return Entry(name, {**owner, MIRROR_ID: mirror_id, NAME: f"db.{name}", PATH: path})


def _catalog(*found: Entry) -> MemoryCatalog:
    tables = {entry.name: Definition(entry.name, entry.parameters, "p", "") for entry in found}
    return MemoryCatalog({"db": _OWNER}, {"db": tables})


def _actions(found: list[Entry], wanted: list[Entry]) -> list[str]:
    catalog = _catalog(*found)
    assert reconcile(catalog, "db", wanted, _OWNER) == ([], False)
    assert catalog.entries("db") == unordered(wanted)
    return catalog.calls


class unordered(list[Entry]):  # noqa: N801 - reads as a matcher
    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and sorted(map(repr, self)) == sorted(map(repr, other))


def test_what_happens_to_tables() -> None:
    a, b, c = (_entry(name, f"id-{name}") for name in "abc")
    assert _actions([a, b], [a, b]) == []
    assert _actions([a], [a, b]) == ["create db.b"]
    assert _actions([a, b], [b]) == ["drop db.a"]
    assert _actions([a, b], [_entry("a", "id-a", "moved"), b]) == ["alter db.a"]
    assert _actions([a], [_entry("z", "id-a")]) == ["alter db.a to z"]
    # dropped and created again by upstream
    assert _actions([a], [_entry("a", "new")]) == ["drop db.a", "create db.a"]
    # b is dropped and a gets its name
    assert _actions([a, b], [_entry("b", "id-a")]) == ["drop db.b", "alter db.a to b"]
    # RENAME TABLE a TO b, b TO a
    assert _actions([a, b, c], [_entry("b", "id-a"), _entry("a", "id-b"), c]) == [
        "drop db.a",
        "drop db.b",
        "create db.b",
        "create db.a",
    ]


_NAMES, _IDS = "abcd", "1234"
_FOUND = st.dictionaries(st.sampled_from(_NAMES), st.tuples(st.sampled_from(_IDS), st.sampled_from([_OWNER, _OTHERS])))
_WANTED = st.dictionaries(st.sampled_from(_IDS), st.sampled_from(_NAMES)).filter(
    lambda names: len({*names.values()}) == len(names)
)


@given(_FOUND, _WANTED)
def test_any_catalog_becomes_the_wanted_one_except_names_of_others(
    found: dict[str, tuple[str, dict[str, str]]], wanted: dict[str, str]
) -> None:
    """Also with two entries of one mirror, which a run that died left behind."""
    entries = [_entry(name, mirror_id, owner=owner) for name, (mirror_id, owner) in found.items()]
    others = [entry for entry in entries if entry.parameters["cdc.lake"] != _OWNER["cdc.lake"]]
    taken = {entry.name for entry in others}
    target = [_entry(name, mirror_id) for mirror_id, name in wanted.items()]
    catalog = _catalog(*entries)
    problems, has_others = reconcile(catalog, "db", target, _OWNER)
    expected = [entry for entry in target if entry.name not in taken]
    assert catalog.entries("db") == unordered([*others, *expected])
    assert has_others == bool(others)
    assert len(problems) == len(target) - len(expected)
    assert plan_actions(catalog.entries("db"), target, _OWNER) == []


def test_a_table_of_somebody_else_is_named_and_left() -> None:
    other = _entry("a", "id-a", owner=_OTHERS)
    catalog = _catalog(other)
    found = reconcile(catalog, "db", [_entry("a", "id-a"), _entry("b", "id-b")], _OWNER)
    assert found == (["db.a exists and is not of this pipeline, so db.a has no entry"], True)
    assert catalog.calls == ["create db.b"]


def test_a_failed_entry_does_not_stop_the_others() -> None:
    wanted = [_entry(name, f"id-{name}") for name in "abc"]
    catalog = _catalog()
    catalog.refused = "db.a"
    assert reconcile(catalog, "db", wanted, _OWNER) == (["db.a: db.a is refused"], False)
    assert catalog.calls == ["create db.b", "create db.c"]


def test_a_catalog_that_refuses_everything_is_given_up() -> None:
    catalog = _catalog()
    catalog.refused = "db."
    problems, _ = reconcile(catalog, "db", [_entry(name, f"id-{name}") for name in "abcdefgh"], _OWNER)
    assert len(problems) == 3
