"""Dataclasses as JSON text and back to equal values, by pydantic: the form of plans, of mirror properties and of settings.

Names of fields, and of the classes in a union, belong to the lake's format. A missing field gets its default, so a later
version may add fields. All types are strict, and unknown fields are errors. Pydantic reads the annotations of the
dataclasses, so their modules import the types at runtime.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar, get_args

from pydantic import (
    AfterValidator,
    GetCoreSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from cdc_pipeline.errors import LakeError

T = TypeVar("T")
_IS, _OF = "is", "of"


class _ByClass:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schemas = {kind.__name__: handler.generate_schema(kind) for kind in get_args(source) or (source,)}
        choices: dict[Any, CoreSchema] = {name: _tagged(name, schema) for name, schema in schemas.items()}
        whole = core_schema.union_schema(list(schemas.values()))
        return core_schema.tagged_union_schema(
            choices, _IS, serialization=core_schema.wrap_serializer_function_ser_schema(_with_class, schema=whole)
        )


BY_CLASS = _ByClass()
"""Annotates a union of dataclasses: the name of the class is stored with the value."""


def _tagged(name: str, schema: CoreSchema) -> CoreSchema:
    fields = {_IS: core_schema.literal_schema([name]), _OF: schema}
    tagged = core_schema.typed_dict_schema(
        {field: core_schema.typed_dict_field(kind, required=True) for field, kind in fields.items()}
    )
    return core_schema.no_info_after_validator_function(lambda plain: plain[_OF], tagged)


def _with_class(value: Any, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return {_IS: type(value).__name__, _OF: handler(value)}


class _AsPairs:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        key, value = get_args(source)
        pairs = handler.generate_schema(tuple[tuple[key, value], ...])  # type: ignore[valid-type]
        return core_schema.no_info_after_validator_function(
            dict,
            pairs,
            serialization=core_schema.wrap_serializer_function_ser_schema(
                lambda mapping, write: write(tuple(mapping.items())), schema=pairs
            ),
        )


AS_PAIRS = _AsPairs()
"""Annotates a mapping whose keys are no texts: it is stored as a list of pairs."""


class _Shared:
    """The values that a text contains once each, while it is written."""

    def __init__(self) -> None:
        self.plain: list[Any] = []
        self._indexes: dict[Any, int] = {}
        self._by_identity: dict[int, tuple[Any, int]] = {}

    def index(self, value: Any, handler: SerializerFunctionWrapHandler) -> int:
        # keeps the value alive, so that no other object gets its id
        if (found := self._by_identity.get(id(value))) is not None:
            return found[1]
        if value not in self._indexes:
            plain = _with_class(value, handler)  # may add other values
            self._indexes[value] = len(self.plain)
            self.plain.append(plain)
        self._by_identity[id(value)] = (value, self._indexes[value])
        return self._indexes[value]


def shareable(kind: type[T]) -> type[T]:
    """Decorates a hashable dataclass: a StoredJson that shares this class contains equal values once."""

    def get_schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        whole: Any = {**handler.resolve_ref_schema(handler(source))}
        ref = whole.pop("ref")  # that of the union: pydantic uses it wherever else the class occurs
        reference = core_schema.with_info_after_validator_function(
            lambda index, info: info.context[index], core_schema.int_schema(strict=True, ge=0)
        )
        return core_schema.union_schema(
            [reference, whole],
            mode="left_to_right",
            ref=ref,
            serialization=core_schema.wrap_serializer_function_ser_schema(write, info_arg=True, schema=whole),
        )

    def write(value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        return handler(value) if info.context is None else info.context.index(value, handler)

    kind.__get_pydantic_core_schema__ = get_schema  # type: ignore[attr-defined]
    return kind


def _add(value: Any, info: ValidationInfo[list[Any]]) -> Any:
    info.context.append(value)
    return value


class StoredJson(Generic[T]):
    """The JSON of values of one type. `shared`: a `shareable` class, or a union of such, whose values it contains once."""

    def __init__(self, kind: type[T], shared: Any = None) -> None:
        self._kind, self._shared = kind, shared

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self._kind)

    @cached_property
    def _document(self) -> TypeAdapter[Any]:
        item: Any = Annotated[self._shared, BY_CLASS, AfterValidator(_add)]
        fields: Any = {"shared": list[item], "value": self._kind}
        return TypeAdapter(TypedDict("document", fields))  # type: ignore[operator]

    def to_plain(self, value: T, exclude: set[str] | None = None) -> Any:
        """JSON-compatible data, without sharing. `exclude`: fields."""
        return self._adapter.dump_python(value, mode="json", warnings="error", exclude=exclude)

    def to_json(self, value: T) -> str:
        if self._shared is None:
            return self._adapter.dump_json(value, warnings="error").decode()
        shared = _Shared()
        plain = self._adapter.dump_python(value, mode="json", warnings="error", context=shared)
        return json.dumps({"shared": shared.plain, "value": plain}, ensure_ascii=False, separators=(",", ":"))

    def from_json(self, text: str) -> T:
        """Raises LakeError, which quotes no value, if the text is not from `to_json` or from a later version."""
        try:
            if self._shared is None:
                return self._adapter.validate_json(text, strict=True, extra="forbid")
            found: T = self._document.validate_json(text, strict=True, extra="forbid", context=[])["value"]
            return found
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise LakeError(f"stored JSON cannot be read: {place}: {first['msg']}") from None
        except IndexError:
            raise LakeError("stored JSON cannot be read: it refers to a value that it does not contain") from None
