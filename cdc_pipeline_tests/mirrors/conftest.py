from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_pipeline_tests.support.lakes.ways import MERGED, REWRITTEN, written_by


@pytest.fixture(scope="module", params=[REWRITTEN, MERGED])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How the cuts of a module's lakes write small mirrors: the tests run once for each way."""
    with written_by(request.param):
        yield request.param
