"""The partitions of TiDB's RANGE … INTERVAL.

TiDB logs such statements with all partitions spelled out. The short form comes from elsewhere, such as scripts.
"""

from __future__ import annotations

import calendar
import datetime
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.model.limits import MAX_PARTITIONS
from cdc_pipeline.mysql.model.partitions import MAXVALUE, Interval, Partition, Partitioning, UnknownPartitionsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc_pipeline.mysql.model.table import Column

    _Value = int | datetime.datetime

_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_TIMES = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600}
_DAYS = {"DAY": 1, "WEEK": 7}
UNITS = (*_TIMES, *_DAYS, *_MONTHS)
"""The units of an INTERVAL over dates."""
NULL_PARTITION = "P_NULL"
_MIN_NUMBER = "-9223372036854775808"
_MIN_DATE = "'0000-01-01'"


def with_interval_partitions(partitioning: Partitioning, columns: tuple[Column, ...]) -> Partitioning:
    """The partitioning with the partitions of its INTERVAL. Unchanged without INTERVAL or with defined partitions.

    Raises UnknownPartitionsError if the bounds do not fit the INTERVAL.
    """
    interval = partitioning.interval
    if interval is None or partitioning.partitions:
        return partitioning
    first = Partition(*_name_and_bound(_bound_value(interval.first), partitioning, columns))
    partitions = (first, *_partitions_between(interval.first, interval.last, partitioning, interval, columns))
    if interval.null_partition:
        # its bound is the least value, so that only NULL is below it
        least = _MIN_DATE if interval.unit else _MIN_NUMBER
        partitions = (Partition(NULL_PARTITION, (least,)), *partitions)
    if interval.maxvalue_partition:
        partitions = (*partitions, Partition("P_MAXVALUE", (MAXVALUE,)))
    return replace(partitioning, partitions=partitions)


def partitions_up_to(bound: str, partitioning: Partitioning, columns: tuple[Column, ...]) -> tuple[Partition, ...]:
    """The partitions above the last bound up to `bound`, which is included.

    Raises UnknownPartitionsError without a known INTERVAL.
    """
    bounded = [part for part in partitioning.partitions if part.less_than not in ((), (MAXVALUE,))]
    if partitioning.interval is None or not bounded:
        raise UnknownPartitionsError("unknown INTERVAL of the partitions")
    return _partitions_between(bounded[-1].less_than[0], bound, partitioning, partitioning.interval, columns)


def position_of_bound(bound: str, partitioning: Partitioning) -> int:
    """The index of the partition with this upper bound. Raises UnknownPartitionsError if there is none."""
    wanted = _bound_value(bound)
    for index, part in enumerate(partitioning.partitions):
        if len(part.less_than) == 1 and part.less_than != (MAXVALUE,) and _bound_value(part.less_than[0]) == wanted:
            return index
    raise UnknownPartitionsError(f"no partition has the bound {bound}")


def _partitions_between(
    start: str, end: str, partitioning: Partitioning, interval: Interval, columns: tuple[Column, ...]
) -> tuple[Partition, ...]:
    """The partitions above the bound `start` up to the bound `end`."""
    last = _bound_value(end)
    partitions: list[Partition] = []
    if _bound_value(start) == last:
        return ()
    for value in _steps(_bound_value(start), interval):
        partitions.append(Partition(*_name_and_bound(value, partitioning, columns)))
        if value == last:
            return tuple(partitions)
        if isinstance(value, int) != isinstance(last, int) or value > last:  # type: ignore[operator]
            break
    raise UnknownPartitionsError(f"{end} is not {start} plus intervals of {interval.amount} {interval.unit}".strip())


def _steps(start: _Value, interval: Interval) -> Iterator[_Value]:
    """The bounds after `start`, each counted from `start`: 31 January plus 2 months is 31 March."""
    if interval.amount < 1 or isinstance(start, int) != (interval.unit == ""):
        raise UnknownPartitionsError(f"an INTERVAL of {interval.amount} {interval.unit} from {start}")
    for number in range(1, MAX_PARTITIONS):
        amount = interval.amount * number
        if isinstance(start, int):
            yield start + amount
        elif interval.unit in _MONTHS:
            yield _months_later(start, amount * _MONTHS[interval.unit])
        else:
            seconds = _TIMES.get(interval.unit) or 86400 * _DAYS[interval.unit]
            try:
                yield start + datetime.timedelta(seconds=amount * seconds)
            except OverflowError as error:
                raise UnknownPartitionsError("a bound after the year 9999") from error


def _months_later(start: datetime.datetime, months: int) -> datetime.datetime:
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    if year > datetime.MAXYEAR:
        raise UnknownPartitionsError(f"a bound in the year {year}")
    day = min(start.day, calendar.monthrange(year, month + 1)[1])
    return start.replace(year=year, month=month + 1, day=day)


def _bound_value(text: str) -> _Value:
    """The bound as a number or a date."""
    try:
        cursor = Cursor(text)
        if cursor.at_kind(Kind.STRING):
            moment = datetime.datetime.fromisoformat(cursor.read_string())
            if cursor.at_end and moment.tzinfo is None:
                return moment
        else:
            sign = -1 if cursor.accept_any("+", "-") == "-" else 1
            number = cursor.read_integer()
            if cursor.at_end:
                return sign * number
    except ValueError:
        pass
    raise UnknownPartitionsError(f"the bound {text} is neither a number nor a date")


def _name_and_bound(
    value: _Value, partitioning: Partitioning, columns: tuple[Column, ...]
) -> tuple[str, tuple[str, ...]]:
    """TiDB's name of the partition with this upper bound, and the bound as SQL."""
    if isinstance(value, int):
        return f"P_LT_{value}", (str(value),)
    by = [name.casefold() for name in partitioning.columns]
    kind = next((column.type for column in columns if [column.name.casefold()] == by), None)
    if kind is None or kind.base not in ("date", "datetime"):
        raise UnknownPartitionsError("an INTERVAL of dates on a column that is neither DATE nor DATETIME")
    if kind.base == "date":
        if value.time() != datetime.time():
            raise UnknownPartitionsError(f"the bound {value} of a DATE has a time")
        text = f"{value:%Y-%m-%d}"
    else:
        digits = kind.params[0] if kind.params else 0
        text = f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value.microsecond:06}"[: digits + 1] if digits else "")
    return f"P_LT_{text}", (f"'{text}'",)
