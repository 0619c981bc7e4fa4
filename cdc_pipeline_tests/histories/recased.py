"""Names in another case than the objects that they mean."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_pipeline_tests.histories.choices import Choices


@dataclass
class Recased:
    """How one statement spells the names of existing objects: each the same throughout.

    `new`: also the tables that it creates, as with `lower_case_table_names=1`, where the tables are in lower case.
    """

    choices: Choices
    new: bool = False
    spelled: dict[str, str] = field(default_factory=dict)

    def __call__(self, name: str) -> str:
        if name not in self.spelled:
            case = self.choices.pick((str.lower, str.upper, str.title, str.swapcase))
            self.spelled[name] = case(name)
        return self.spelled[name]
