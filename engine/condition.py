"""A condition over a step's numbers, as somebody types it: `free_blocks < 4 and waiting > 2`.

Numbers, names of NUMBERS, comparisons, and / or / not, + - * / and parentheses; nothing else is understood. It is
parsed once and evaluated by walking the tree, so no text of a user's is ever run.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import RequestError, brief, shown

NUMBERS = (
    "step",
    "step_ms",
    "running",
    "waiting",
    "scheduled_tokens",
    "prefill_tokens",
    "decode_tokens",
    "free_blocks",
    "cached_idle_blocks",
    "referenced_blocks",
    "preemptions",
    "evictions",
    "finished",
)
"""What a condition may name; all of one step."""

MAX_CONDITION_CHARS = 200

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b if b else 0.0,
}


class Condition:
    """A parsed condition. Raises RequestError saying what it does not understand."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CONDITION_CHARS:
            raise RequestError(
                f"The condition has {len(text)} characters; the limit is {MAX_CONDITION_CHARS}.", param="on"
            )
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            raise RequestError(
                f"The condition {shown(text)} cannot be read; try free_blocks < 4 and waiting > 2.", param="on"
            ) from None
        self.text = text
        _check(self._tree)

    def holds(self, numbers: Mapping[str, float]) -> bool:
        """Whether it is true of these numbers, one for each of NUMBERS."""
        return bool(_value(self._tree, numbers))


def _check(node: ast.expr) -> None:
    match node:
        case ast.BoolOp(values=parts):
            children = parts
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=part):
            children = [part]
        case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(op) in _COMPARE for op in ops):
            children = [left, *rest]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            children = [left, right]
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            children = []
        case ast.Name(id=name) if name in NUMBERS:
            children = []
        case ast.Name(id=name):
            raise RequestError(f"The condition names {brief(name)}; it may name {', '.join(NUMBERS)}.", param="on")
        case _:
            raise RequestError(
                f"The condition may not contain {shown(ast.unparse(node))}: "
                "numbers, names, comparisons, and/or/not only.",
                param="on",
            )
    for child in children:
        _check(child)


def _value(node: ast.expr, numbers: Mapping[str, float]) -> Any:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, numbers) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, numbers) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _value(part, numbers)
        case ast.UnaryOp(operand=part):
            return -_value(part, numbers)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            values = [_value(part, numbers) for part in (left, *rest)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_value(left, numbers), _value(right, numbers))
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return numbers[name]
    raise AssertionError("checked at construction")
