"""docs/architecture.md describes the rooms that exist. `lint-imports` checks their imports."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import cdc_pipeline
from cdc_pipeline_tests.support.imports import imported, tree
from cdc_pipeline_tests.support.toml import read_toml

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "cdc_pipeline", ROOT / "cdc_pipeline_tests"
DOCUMENT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROOMS = sorted(file.parent for file in PACKAGE.rglob("__init__.py") if file.parent != PACKAGE)
_MOST_MODULES = 22
_UNUSED = 60
"""Lines by which a limit of `rooms.toml` may exceed those of its room."""


def _named(text: str) -> list[str]:
    """The paths in backticks: files, and folders with a trailing slash."""
    return re.findall(r"`((?:[\w.-]+/)+|(?:[\w.-]+/)*[\w-]+\.(?:py|md|json|yaml))`", text)


def _section(title: str) -> str:
    return DOCUMENT.split(f"\n## {title}")[1].split("\n## ")[0]


def test_each_path_to_add_something_exists() -> None:
    """Paths are below the package, except those of tests, docs and scripts."""
    titles, texts = _tasks()
    assert titles == [
        "A dialect",
        "A DDL statement or clause",
        "A MySQL type",
        "An option per table",
        "A check",
        "A source",
        "A kind of gap",
    ]
    for title, text in zip(titles, texts, strict=True):
        rows = re.findall(r"^\|[^|]*\|([^|]*)\|$", text, re.MULTILINE)[2:]
        assert len(rows) > 3, title
        for path in _named(text):
            beside = path.startswith(("cdc_pipeline_tests/", "docs/", "scripts/"))
            assert ((ROOT if beside else PACKAGE) / path).exists(), f"{title}: {path}"


def _tasks() -> tuple[list[str], list[str]]:
    """The titles and texts of the tasks in the section "To add something"."""
    tasks = re.split(r"^### (.+)$", _section("To add something"), flags=re.MULTILINE)[1:]
    return tasks[::2], tasks[1::2]


def test_the_tables_of_rooms_match_the_packages() -> None:
    rooms = _section("Rooms")
    rows = [cell for row in re.findall(r"^\|([^|]*`[^|]*)\|", rooms, re.MULTILINE) for cell in _named(row)]
    for path in rows:
        assert (PACKAGE / path).exists(), path
    named = {path.rstrip("/") for path in _named(rooms)}
    inside = {"tables", "capture_files", "kafka", "storage"}  # listed in the row of their parent
    for folder in ROOMS:
        room = folder.relative_to(PACKAGE).as_posix()
        assert room in named or (folder.name in inside and folder.name in named), room


@pytest.mark.parametrize("folder", ROOMS, ids=lambda folder: folder.relative_to(PACKAGE).as_posix())
def test_each_room_has_a_docstring_and_few_modules(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    assert text, "no docstring"
    assert len(list(folder.glob("*.py"))) - 1 <= _MOST_MODULES


def test_rooms_have_the_lines_of_their_table() -> None:
    """`rooms.toml` limits each room, so that a change that adds lines says why."""
    limits, lines = read_toml(TESTS / "rooms.toml"), Counter[str]()
    for module in PACKAGE.rglob("*.py"):
        lines[_room(module.relative_to(PACKAGE))] += len(module.read_text(encoding="utf-8").splitlines())
    assert lines.keys() == limits.keys()
    for room, limit in limits.items():
        assert lines[room] <= limit["most"], (
            f"{room} has {lines[room]} lines: remove some, or raise `most` with a reason"
        )
        assert lines[room] > limit["most"] - _UNUSED, f"{room} has only {lines[room]} lines: lower `most`"
        assert limit["most"] <= limit["goal"] or limit["why"], f"{room} has more lines than its goal: say why"


def _room(module: Path) -> str:
    """The room of a module: the folder below the package, or below one of its parts with rooms of their own."""
    *folders, _ = module.parts
    if not folders or (folders[0] in ("mirrors", "mysql") and len(folders) == 1):
        return "root"
    return "/".join(folders[:2]) if folders[0] in ("mirrors", "mysql", "sources") else folders[0]


def test_modules_named_in_the_docs_exist() -> None:
    """Checks paths with a folder, such as `mirrors/model/state.py`. Bare names depend on the text around them."""
    tops = {folder.relative_to(top).parts[0] for top in (PACKAGE, TESTS) for folder in top.iterdir() if folder.is_dir()}
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for path in re.findall(r"`((?:[\w-]+/)+[\w-]+\.py)(?:::\w+)?`", document.read_text(encoding="utf-8")):
            if path.split("/")[0] in tops:
                assert (PACKAGE / path).exists() or (TESTS / path).exists(), f"{document.name}: {path}"


def test_nothing_private_of_dagster_is_used() -> None:
    """Neither imported nor named in a text nor reached through a public module: it changes without notice."""
    private = re.compile(r"dagster\w*\.(?:\w+\.)*_(?!_)")
    for file in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(tree(file)))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        paths = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        named = {*imported(file), *texts, *(re.sub(r"^dg\.", "dagster.", path) for path in paths)}
        assert [name for name in sorted(named) if private.match(name)] == [], file


def test_public_names_are_exported_by_the_package() -> None:
    assert set(cdc_pipeline.__all__) == {
        "CaptureFilesSource",
        "CdcPipeline",
        "CutTables",
        "KafkaSource",
        "SparkLakehouse",
        "TicdcStorageSource",
        "jar_packages",
        "read_cut",
    }
    assert all(hasattr(cdc_pipeline, name) for name in cdc_pipeline.__all__)
