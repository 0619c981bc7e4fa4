import pytest

# what an assertion in a helper compares is shown as in a test
pytest.register_assert_rewrite("cdc_pipeline_tests.support", "cdc_pipeline_tests.histories")
