"""Values of dataclasses as JSON text, and back to equal ones: what a plan is stored as.

Each dataclass is an object with its name at "is" and all of its fields, tuples are arrays, other containers say what they
are. Fields that a stored value lacks have their defaults: a later version may add some. Nothing is left out because it is a
default: that may be another one later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_IS, _OF = "is", "of"
_SHARED = "shared"


@dataclass(frozen=True)
class OwnForm:
    """How a class is stored that has a form of its own: as JSON that `back` reads to an equal value."""

    plain: Callable[[Any], Any]
    back: Callable[[Any], Any]


@dataclass(frozen=True)
class ValueText:
    """`classes` are the dataclasses and enumerations that values are made of, `own` those of them with a form of their own.
    Values of `shared` classes stand in the text once, however often they occur."""

    classes: Iterable[type]
    own: dict[type, OwnForm] = field(default_factory=dict)
    shared: frozenset[type] = frozenset()

    def text(self, value: Any) -> str:
        """Raises TypeError where a part of the value is of no class that is known here."""
        writer = _Writer(self)
        plain = writer.plain(value)
        return json.dumps({_SHARED: writer.shared, "value": plain}, ensure_ascii=False, separators=(",", ":"))

    def value(self, text: str) -> Any:
        """Raises ValueError where the text is none of `text`, or of a later version."""
        found = json.loads(text)
        reader = _Reader(self)
        try:
            reader.shared = []
            for plain in found[_SHARED]:
                reader.shared.append(reader.value(plain))
            return reader.value(found["value"])
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"a stored plan cannot be read: {type(error).__name__} {error}") from error

    def by_name(self) -> dict[str, type]:
        return {kind.__name__: kind for kind in self.classes}


class _Writer:
    def __init__(self, form: ValueText) -> None:
        self._form = form
        self._known = set(form.classes)
        self._places: dict[Any, int] = {}
        self._by_identity: dict[int, tuple[Any, int]] = {}
        self.shared: list[Any] = []

    def plain(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, list):
            return {_IS: "list", _OF: [self.plain(item) for item in value]}
        if isinstance(value, (set, frozenset)):
            return {_IS: "set", _OF: sorted((self.plain(item) for item in value), key=json.dumps)}
        if isinstance(value, dict):
            return {_IS: "dict", _OF: [[self.plain(key), self.plain(item)] for key, item in value.items()]}
        kind = type(value)
        if kind not in self._known:
            raise TypeError(f"{kind.__name__} is no part of a stored plan")
        return self._once(value) if kind in self._form.shared else self._whole(value)

    def _once(self, value: Any) -> Any:
        """Where the value stands among the shared ones."""
        # the value itself is kept, too: its identity must not become another's
        if (found := self._by_identity.get(id(value))) is not None:
            return {_IS: _SHARED, _OF: found[1]}
        place = self._places.get(value)
        if place is None:
            plain = self._whole(value)
            place = self._places[value] = len(self.shared)
            self.shared.append(plain)
        self._by_identity[id(value)] = (value, place)
        return {_IS: _SHARED, _OF: place}

    def _whole(self, value: Any) -> dict[str, Any]:
        kind = type(value)
        if (own := self._form.own.get(kind)) is not None:
            return {_IS: kind.__name__, _OF: own.plain(value)}
        if isinstance(value, Enum):
            return {_IS: kind.__name__, _OF: value.value}
        assert is_dataclass(value)
        return {_IS: kind.__name__, **{item.name: self.plain(getattr(value, item.name)) for item in fields(value)}}


class _Reader:
    def __init__(self, form: ValueText) -> None:
        self._form = form
        self._by_name = form.by_name()
        self.shared: list[Any] = []

    def value(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return tuple(self.value(item) for item in plain)
        if not isinstance(plain, dict):
            return plain
        name = plain[_IS]
        if name == _SHARED:
            return self.shared[plain[_OF]]
        if name == "list":
            return [self.value(item) for item in plain[_OF]]
        if name == "set":
            return frozenset(self.value(item) for item in plain[_OF])
        if name == "dict":
            return {self.value(key): self.value(item) for key, item in plain[_OF]}
        kind = self._by_name[name]
        if (own := self._form.own.get(kind)) is not None:
            return own.back(plain[_OF])
        if issubclass(kind, Enum):
            return kind(plain[_OF])
        return kind(**{key: self.value(item) for key, item in plain.items() if key != _IS})
