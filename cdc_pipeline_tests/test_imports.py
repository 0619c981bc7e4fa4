"""Test modules import their helpers from `support`, not from each other."""

from __future__ import annotations

from cdc_pipeline_tests.support.imports import imported
from cdc_pipeline_tests.support.tiers import TESTS

# The docs name the tests of these modules, so tests compare them.
_LOOKS_AT_TESTS = "test_docs.py"
# Tables of cases that the docs name. The model of an upstream and the local broker have their own packages.
_BESIDE_THEIR_TESTS = {"contracts/cases.py", "contracts/sent_cases.py"}


def test_no_module_imports_from_a_test_module() -> None:
    found = {
        (file.relative_to(TESTS).as_posix(), name)
        for file in TESTS.rglob("*.py")
        if file.name != _LOOKS_AT_TESTS
        for name in imported(file)
        if name.startswith(f"{TESTS.name}.") and any(part.startswith("test_") for part in name.split("."))
    }
    assert found == set()


def test_helpers_are_in_support() -> None:
    found = {file.relative_to(TESTS).as_posix() for file in TESTS.rglob("*.py")}
    loose = {
        name
        for name in found
        if not name.startswith(("support/", "histories/", "local_kafka/"))
        and not name.rpartition("/")[2].startswith(("test_", "conftest.", "__init__."))
    }
    assert loose == _BESIDE_THEIR_TESTS
