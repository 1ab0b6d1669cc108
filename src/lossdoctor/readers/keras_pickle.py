"""A pickled Keras history. The file is taken apart opcode by opcode: nothing that it names is imported or called."""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lossdoctor.readers.parts.names import word_set
from lossdoctor.readers.parts.numbers import number
from lossdoctor.readers.parts.reader import Reader
from lossdoctor.readers.parts.records import add_lists
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.parts.table import Builder, Table

FORMAT = "pickled history"
LARGEST = 64 << 20
# Objects that may be made of one file: more is no history.
MOST_OBJECTS = 5_000_000


class _Refused(ValueError):
    """Say that the pickle holds what a history does not."""


class _Named:
    """Stand for a class or function that the pickle names; it is never looked up."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Made:
    """Stand for an object that the pickle would make by a call."""

    def __init__(self, made_by: Any, arguments: Any) -> None:
        self.made_by, self.arguments = made_by, arguments
        self.state: Any = None


_MARK = object()
_SCALARS = {"float64": "<f8", "float32": "<f4", "f8": "<f8", "f4": "<f4", "f2": "<f2", "i8": "<i8", "i4": "<i4"}


def knows(source: Source) -> float:
    """Be sure of a pickle of protocol 2 or later; fairly sure of an older one that begins with a dictionary or class."""
    head = source.head[:4]
    if len(head) > 2 and head[0] == 0x80 and head[1] in (2, 3, 4, 5):
        return 0.9
    return 0.3 if head[:2] in (b"(d", b"cc", b"ck", b"cn", b"(l") else 0.0


def read(source: Source) -> list[Table]:
    """Read the lists of numbers of the history."""
    builder = Builder(FORMAT)
    if source.size > LARGEST:
        builder.note(f"{source.name} is too large for a history")
        return [builder.table()]
    data = b"".join(source.blocks())
    try:
        _fill(builder, plain(data), 4)
    except (_Refused, ValueError, IndexError, KeyError, AttributeError, TypeError, struct.error, EOFError, NotImplementedError) as error:
        builder.note(f"the pickle is damaged or no history ({error})")
    return [builder.table()]


def _fill(builder: Builder, value: Any, depth: int) -> None:
    if isinstance(value, _Made):
        value = value.state
    if not isinstance(value, dict) or depth == 0:
        return
    lists = {str(name): list(_numbers(held)) for name, held in value.items() if isinstance(held, list | _Made)}
    lists = {name: held for name, held in lists.items() if held}
    if lists:
        add_lists(builder, lists)
        return
    for held in value.values():
        if builder.made.rows == 0:
            _fill(builder, held, depth - 1)


def _numbers(value: Any) -> Iterator[float | None]:
    if isinstance(value, list):
        for item in value:
            yield _scalar(item) if isinstance(item, _Made) else number(item)


def _scalar(made: _Made) -> float | None:
    """Read numpy's scalar: a type and its bytes."""
    arguments = made.arguments if isinstance(made.arguments, tuple) else ()
    if not (isinstance(made.made_by, _Named) and made.made_by.name.endswith("multiarray scalar") and len(arguments) == 2):
        return None
    kind, raw = arguments
    name = kind.arguments[0] if isinstance(kind, _Made) and isinstance(kind.arguments, tuple) and kind.arguments else None
    raw = raw.encode("latin-1") if isinstance(raw, str) else raw
    code = _SCALARS.get(name) if isinstance(name, str) else None
    if code is None or not isinstance(raw, bytes) or len(raw) != np.dtype(code).itemsize:
        return None
    return float(np.frombuffer(raw, dtype=code)[0])


def plain(data: bytes) -> Any:
    """Take a pickle apart into dictionaries, lists, tuples, numbers, text and stand-ins.

    Raises:
        ValueError: where it is damaged, or uses what a history does not.

    Example:
        >>> import pickle
        >>> plain(pickle.dumps({"loss": [1.0, 0.5]}))
        {'loss': [1.0, 0.5]}
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count > MOST_OBJECTS:
            raise _Refused("too many objects")
        name = opcode.name
        if name == "STOP":
            return stack.pop()
        step = _STEPS.get(name)
        if step is not None:
            step(stack, memo, argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _LITERALS:
            stack.append(argument)
        else:
            raise _Refused(f"opcode {name}")
    raise _Refused("it ends too soon")


def _to_mark(stack: list[Any]) -> list[Any]:
    items: list[Any] = []
    while stack:
        item = stack.pop()
        if item is _MARK:
            return items[::-1]
        items.append(item)
    raise _Refused("no mark")


def _set_items(target: Any, items: list[Any]) -> None:
    if isinstance(target, _Made):
        target.state = target.state if isinstance(target.state, dict) else {}
        target = target.state
    if not isinstance(target, dict):
        raise _Refused("items of no dictionary")
    for key, value in zip(items[::2], items[1::2], strict=False):
        target[key if isinstance(key, str | int | float) else str(type(key))] = value


def _append(target: Any, items: list[Any]) -> None:
    if not isinstance(target, list):
        raise _Refused("items of no list")
    target.extend(items)


def _with_items(stack: list[Any], items: list[Any], work: Callable[[Any, list[Any]], None]) -> None:
    work(stack[-1], items)


def _build(stack: list[Any]) -> None:
    state = stack.pop()
    if isinstance(stack[-1], _Made):
        stack[-1].state = state


def _call(stack: list[Any]) -> None:
    arguments = stack.pop()
    stack.append(_Made(stack.pop(), arguments))


def _stack_global(stack: list[Any]) -> None:
    name = stack.pop()
    stack.append(_Named(f"{stack.pop()} {name}"))


def _tuple(stack: list[Any], length: int) -> None:
    items = [stack.pop() for _ in range(length)][::-1]
    stack.append(tuple(items))


def _dictionary(stack: list[Any]) -> None:
    made: dict[Any, Any] = {}
    _set_items(made, _to_mark(stack))
    stack.append(made)


_LITERALS = word_set(
    "INT LONG LONG1 LONG4 BININT BININT1 BININT2 FLOAT BINFLOAT UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 STRING BINSTRING",
    "SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8",
)
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_STEPS: dict[str, Any] = {
    "PROTO": lambda stack, memo, argument: None,
    "FRAME": lambda stack, memo, argument: None,
    "MARK": lambda stack, memo, argument: stack.append(_MARK),
    "EMPTY_DICT": lambda stack, memo, argument: stack.append({}),
    "EMPTY_LIST": lambda stack, memo, argument: stack.append([]),
    "EMPTY_TUPLE": lambda stack, memo, argument: stack.append(()),
    "POP": lambda stack, memo, argument: stack.pop(),
    "POP_MARK": lambda stack, memo, argument: _to_mark(stack),
    "DUP": lambda stack, memo, argument: stack.append(stack[-1]),
    "MEMOIZE": lambda stack, memo, argument: memo.__setitem__(len(memo), stack[-1]),
    "PUT": lambda stack, memo, argument: memo.__setitem__(argument, stack[-1]),
    "BINPUT": lambda stack, memo, argument: memo.__setitem__(argument, stack[-1]),
    "LONG_BINPUT": lambda stack, memo, argument: memo.__setitem__(argument, stack[-1]),
    "GET": lambda stack, memo, argument: stack.append(memo[argument]),
    "BINGET": lambda stack, memo, argument: stack.append(memo[argument]),
    "LONG_BINGET": lambda stack, memo, argument: stack.append(memo[argument]),
    "APPEND": lambda stack, memo, argument: _append(stack[-2], [stack.pop()]),
    "APPENDS": lambda stack, memo, argument: _with_items(stack, _to_mark(stack), _append),
    "SETITEM": lambda stack, memo, argument: _with_items(stack, [stack.pop(-2), stack.pop()], _set_items),
    "SETITEMS": lambda stack, memo, argument: _with_items(stack, _to_mark(stack), _set_items),
    "LIST": lambda stack, memo, argument: stack.append(_to_mark(stack)),
    "DICT": lambda stack, memo, argument: _dictionary(stack),
    "TUPLE": lambda stack, memo, argument: stack.append(tuple(_to_mark(stack))),
    "TUPLE1": lambda stack, memo, argument: _tuple(stack, 1),
    "TUPLE2": lambda stack, memo, argument: _tuple(stack, 2),
    "TUPLE3": lambda stack, memo, argument: _tuple(stack, 3),
    "GLOBAL": lambda stack, memo, argument: stack.append(_Named(argument)),
    "STACK_GLOBAL": lambda stack, memo, argument: _stack_global(stack),
    "REDUCE": lambda stack, memo, argument: _call(stack),
    "NEWOBJ": lambda stack, memo, argument: _call(stack),
    "BUILD": lambda stack, memo, argument: _build(stack),
}

READERS = (Reader(FORMAT, knows, read),)
