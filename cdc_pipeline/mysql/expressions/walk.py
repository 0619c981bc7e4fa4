"""Translates the syntax tree of a MySQL expression to a `Value`. Nodes that are not listed here raise ExpressionError."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from cdc_pipeline.mysql.expressions import arithmetic, logic, moments
from cdc_pipeline.mysql.expressions import date_functions as dates
from cdc_pipeline.mysql.expressions import json_functions as json
from cdc_pipeline.mysql.expressions import string_functions as strings
from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.casts import cast
from cdc_pipeline.mysql.expressions.column_values import column_value
from cdc_pipeline.mysql.expressions.syntax import Syntax
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind
from cdc_pipeline.mysql.model import limits

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_PREDICATES = (*_COMPARISONS, exp.NullSafeEQ, exp.Is, exp.In, exp.Between)
_LOGIC: dict[type[exp.Expr], str] = {exp.And: "AND", exp.Or: "OR", exp.Xor: "XOR"}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "DIV",
    exp.Mod: "%",
}
_KEYWORD_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "NOW",
    exp.Localtime: "NOW",
    exp.Localtimestamp: "NOW",
    exp.CurrentDate: "CURDATE",
}
_SHIFTS = {"DATE_ADD": 1, "ADDDATE": 1, "DATE_SUB": -1, "SUBDATE": -1}
_FUNCTIONS = {**strings.FUNCTIONS, **arithmetic.FUNCTIONS, **json.FUNCTIONS, **dates.FUNCTIONS, **logic.FUNCTIONS}


def value_of(text: str, context: Context, *, size_factor: int = 1) -> Value:
    """The value of an expression.

    `size_factor`: multiplies the size limits, for an expression that combines several others.

    Raises ExpressionError if the expression has no exact equivalent in Spark SQL or exceeds a size limit.
    """
    limit = limits.MAX_EXPRESSION_CHARACTERS * size_factor
    if len(text) > limit:
        raise ExpressionError(limits.limit_message("characters of the expression", len(text), limit))
    syntax = Syntax(text)
    try:
        return _Translator(syntax, context, limits.MAX_TRANSLATED_CHARACTERS * size_factor).value(syntax.tree)
    except RecursionError as error:
        raise ExpressionError(f"the expression is nested too deeply: {text[:60]}") from error


class _Translator:
    def __init__(self, syntax: Syntax, context: Context, most_characters: int) -> None:
        self._most_characters = most_characters
        self.syntax = syntax
        self.context = context
        self._depth = 0

    def value(self, node: exp.Expr) -> Value:
        """The value of a node.

        The limits bound the SQL text, which nested functions could multiply, and its depth, which Spark's parser limits.
        """
        self._depth += 1
        if self._depth > limits.MAX_NESTING:
            raise ExpressionError(limits.limit_message("levels of the expression", self._depth, limits.MAX_NESTING))
        value = self._translate(node)
        self._depth -= 1
        size = max(len(value.sql), len(value.doubt or ""))
        if size > self._most_characters:
            raise ExpressionError(limits.limit_message("characters of the translation", size, self._most_characters))
        return value

    def _translate(self, node: exp.Expr) -> Value:
        if node.comments:
            raise ExpressionError("a comment inside an expression is not supported")
        kind = type(node)
        if kind is exp.Paren:
            return self.value(node.this)
        if kind is exp.Literal:
            return self._literal(node)
        if kind is exp.Column:
            return self._column(node)
        if kind is exp.Null:
            return v.null()
        if kind is exp.Boolean:
            return replace(v.boolean_value("true" if node.this else "false"), constant=int(node.this))
        if kind is exp.Neg:
            return arithmetic.negative(self.value(node.this))
        if kind in _PREDICATES:
            return self._predicate(node)
        if kind in _LOGIC:
            return logic.combined_condition(_LOGIC[kind], [self.value(node.this), self.value(node.expression)])
        if kind is exp.Not:
            return logic.negation(self.value(node.this))
        if kind in _ARITHMETIC:
            return self._arithmetic(node)
        if kind in _KEYWORD_FUNCTIONS and not any(node.args.values()):
            return dates.FUNCTIONS[_KEYWORD_FUNCTIONS[kind]][2]([], self.context)
        if kind is exp.Anonymous:
            return self._function(node)
        return self._special(node)

    def _unsupported(self, node: exp.Expr) -> ExpressionError:
        return ExpressionError(f"not supported: {node.sql(dialect='mysql')[:80]} ({type(node).__name__})")

    # ---- leaves

    def _literal(self, node: exp.Expr) -> Value:
        literal = self.syntax.literal(node)
        return arithmetic.number_literal(node.name) if literal is None else literal

    def _column(self, node: exp.Expr) -> Value:
        identifier = node.this
        if not isinstance(identifier, exp.Identifier) or node.args.get("db"):
            raise self._unsupported(node)
        column = self.context.schema.find(identifier.this)
        if column is None:
            raise ExpressionError(f"no column {identifier.this} in the table")
        if column.name == self.context.computed:
            raise ExpressionError(f"{column.name} depends on itself")
        return column_value(column, self.context.schema)

    # ---- operators

    def _predicate(self, node: exp.Expr) -> Value:
        # MySQL evaluates `a = b < c` from left to right, sqlglot does not
        operands = [item for item in node.iter_expressions() if isinstance(item, (*_PREDICATES, exp.Not))]
        if operands:
            raise ExpressionError("a comparison of a comparison needs brackets")
        left = self.value(node.this)
        kind = type(node)
        if kind in _COMPARISONS:
            return logic.comparison(_COMPARISONS[kind], left, self.value(node.expression), self.context)
        if kind is exp.Is:
            return self._is(left, node.expression)
        if kind is exp.Between:
            low, high = self.value(node.args["low"]), self.value(node.args["high"])
            if node.args.get("symmetric") or ValueKind.NULL in (left.kind, low.kind, high.kind):
                raise self._unsupported(node)
            return logic.between(left, low, high, self.context)
        if kind is not exp.In or set(filter(node.args.get, node.args)) != {"this", "expressions"}:
            raise self._unsupported(node)
        items = [self.value(item) for item in node.expressions]
        if left.kind is ValueKind.NULL:
            return v.null()
        return logic.in_list(left, items, self.context)

    def _is(self, left: Value, right: exp.Expr) -> Value:
        if isinstance(right, exp.Null):
            return logic.is_null(left)
        if isinstance(right, exp.Boolean):
            return logic.boolean_test(left, bool(right.this))
        raise self._unsupported(right)

    def _arithmetic(self, node: exp.Expr) -> Value:
        left, right, kind = node.this, node.expression, type(node)
        if isinstance(right, exp.Interval) and kind in (exp.Add, exp.Sub):
            return self._add_interval(self.value(left), right, 1 if kind is exp.Add else -1)
        if isinstance(left, exp.Interval) and kind is exp.Add:
            return self._add_interval(self.value(right), left, 1)
        return arithmetic.operation(_ARITHMETIC[kind], self.value(left), self.value(right))

    def _add_interval(self, value: Value, interval: exp.Expr, sign: int) -> Value:
        unit, amount = interval.args.get("unit"), interval.this
        if not isinstance(unit, exp.Var) or amount is None:
            raise self._unsupported(interval)
        return moments.add_interval(value, self.value(amount), unit.name.upper(), sign, self.context)

    # ---- functions

    def _function(self, node: exp.Expr) -> Value:
        name, arguments = str(node.this).upper(), list(node.expressions)
        if not isinstance(node.this, str):
            raise self._unsupported(node)
        if name in _SHIFTS and len(arguments) == 2:
            value, amount = self.value(arguments[0]), arguments[1]
            if isinstance(amount, exp.Interval):
                return self._add_interval(value, amount, _SHIFTS[name])
            if name in ("ADDDATE", "SUBDATE"):
                return moments.add_interval(value, self.value(amount), "DAY", _SHIFTS[name], self.context)
        if name == "TIMESTAMPDIFF" and len(arguments) == 3 and isinstance(arguments[0], exp.Column):
            unit = arguments[0].name.upper().removeprefix("SQL_TSI_")
            return moments.timestamp_diff(unit, [self.value(item) for item in arguments[1:]], self.context)
        if name not in _FUNCTIONS:
            raise ExpressionError(f"function {name} is not supported")
        fewest, most, translate = _FUNCTIONS[name]
        if not fewest <= len(arguments) <= most:
            expected = fewest if fewest == most else f"{fewest} to {most}"
            raise ExpressionError(f"{name} with {len(arguments)} arguments: expected {expected}")
        return translate([self.value(item) for item in arguments], self.context)

    def _special(self, node: exp.Expr) -> Value:
        kind, args = type(node), node.args
        if kind is exp.If:
            cases = [(self.value(node.this), self.value(args["true"]))]
            return logic.case_when(cases, self._or_null(args.get("false")), self.context)
        if kind is exp.Case:
            return self._case(node)
        if kind is exp.Extract and isinstance(node.this, exp.Var):
            return dates.extract(node.this.name.upper(), self.value(node.expression), self.context)
        if kind is exp.Trim and not args.get("collation"):
            removed = None if node.expression is None else self.value(node.expression)
            return strings.trim(self.value(node.this), args.get("position") or "BOTH", removed, self.context)
        if kind is exp.Substring and node.this is not None and args.get("start"):
            parts = [node.this, args["start"], *([args["length"]] if args.get("length") else [])]
            return strings.substring([self.value(item) for item in parts], self.context)
        if kind in (exp.JSONExtract, exp.JSONExtractScalar):
            return self._arrow(node)
        if kind is exp.Cast:
            return self._cast(node)
        raise self._unsupported(node)

    def _or_null(self, node: exp.Expr | None) -> Value:
        return v.null() if node is None else self.value(node)

    def _case(self, node: exp.Expr) -> Value:
        pairs = [(self.value(item.this), self.value(item.args["true"])) for item in node.args["ifs"]]
        otherwise = self._or_null(node.args.get("default"))
        if node.this is None:
            return logic.case_when(pairs, otherwise, self.context)

        def search(subject: Value) -> Value:
            cases = [(logic.comparison("=", subject, test, self.context), value) for test, value in pairs]
            return logic.case_when(cases, otherwise, self.context)

        return v.bind_value(self.value(node.this), search)

    def _arrow(self, node: exp.Expr) -> Value:
        """`column -> path` and `column ->> path`. sqlglot has parsed the placeholder of the path literal as a path."""
        path = node.expression
        parts = path.expressions if isinstance(path, exp.JSONPath) else []
        key = parts[1].this if len(parts) == 2 and isinstance(parts[1], exp.JSONPathKey) else None
        literal = self.syntax.literal_by_placeholder(key) if isinstance(key, str) else None
        if literal is None or node.args.get("expressions"):
            raise self._unsupported(node)
        extracted = json.json_extract(self.value(node.this), literal)
        return json.json_unquote(extracted) if type(node) is exp.JSONExtractScalar else extracted

    def _cast(self, node: exp.Expr) -> Value:
        value = self.value(node.this)
        if node.args.get("format") or node.args.get("default"):
            raise self._unsupported(node)
        result = cast(value, node.args["to"], self.context)
        if result is None:
            raise self._unsupported(node)
        return result
