"""`evidence.toml` names what needs each kind of gap, trait, step and flag."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from cdc_pipeline import CdcPipeline
from cdc_pipeline.dialects.traits import Trait
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.mirrors.model.steps import Step
from cdc_pipeline_tests.support.toml import read_toml

_TESTS = Path(__file__).parent
_EVIDENCE = read_toml(_TESTS / "evidence.toml")
_FOLDERS = {"capture": _TESTS.parent / "data/captures", "document": _TESTS / "dialects/documents"}
_FACTS = {"canal-facts ": 56, "ticdc-facts §": 10, "promise ": 14}
"""What precedes the number of a fact, and how many there are."""
_NONE = r"none: to be removed by move \d+"


def _flags() -> set[str]:
    found = set()
    for room in ("model", "changes", "merge"):
        package = import_module(f"cdc_pipeline.mirrors.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for value in vars(import_module(module.name)).values():
                if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.name:
                    found |= {
                        f"{value.__name__}.{field.name}"
                        for field in fields(value)
                        if str(field.type).startswith("bool")
                    }
    return found


def test_each_member_has_its_evidence() -> None:
    assert _EVIDENCE["gaps"].keys() == {kind.value for kind in GapKind}
    assert _EVIDENCE["traits"].keys() == {trait.name for trait in Trait}
    assert _EVIDENCE["steps"].keys() == {step.__name__ for step in get_args(get_args(Step)[0])}
    assert _EVIDENCE["flags"].keys() == _flags()


_LINES = [line for table in _EVIDENCE.values() if isinstance(table, dict) for line in table.items()]


@pytest.mark.parametrize(("member", "evidence"), _LINES, ids=[member for member, _ in _LINES])
def test_evidence_exists(member: str, evidence: str) -> None:
    if re.fullmatch(_NONE, evidence):
        return
    for item in evidence.split("; "):
        kind, _, name = item.partition(" ")
        if kind in _FOLDERS:
            assert (_FOLDERS[kind] / name).is_dir(), f"{member}: {item}"
        elif kind == "setting":
            assert name in CdcPipeline.model_fields, f"{member}: {item}"
        else:
            form = re.fullmatch(r"(\D+)(\d+)", item)
            assert form, f"{member}: {item}"
            assert 1 <= int(form[2]) <= _FACTS[form[1]], f"{member}: {item}"


def test_members_without_evidence_become_fewer() -> None:
    without = [member for member, evidence in _LINES if evidence.startswith("none")]
    assert len(without) == _EVIDENCE["without_evidence"], f"lower `without_evidence`, or name evidence: {without}"
