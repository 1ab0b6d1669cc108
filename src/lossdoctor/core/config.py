"""The settings: `[tool.lossdoctor]` of the pyproject.toml found from a folder upwards. The keys are the options."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossdoctor.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

FAIL_ON = ("error", "warning", "never")
WORKUP = ("auto", "none", "full")


@dataclass(frozen=True)
class Settings:
    """Hold the settings that hold for all commands; each is an option of the command line too.

    Args:
        out: folder of the runs.
        json: file for the report as JSON, or None.
        html: file for the report as HTML, or None.
        quiet: say nothing but errors.
        select: codes, slugs or families of the faults to look at; empty for all.
        ignore: codes, slugs or families of the faults to leave out.
        fail_on: lowest severity that turns exit status 0 into 1: `error`, `warning` or `never`.
        max_steps: steps after which recording ends, or None.
        budget: share of a step's time that measuring may take.
        workup: active experiments after a watched run: `auto`, `none` or `full`.
        devices: further devices for `lossdoctor machine`, a table for each (docs/machine.md).

    Example:
        >>> Settings().fail_on
        'never'
    """

    out: Path = Path(".lossdoctor")
    json: str | None = None
    html: str | None = None
    quiet: bool = False
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str = "never"
    max_steps: int | None = None
    budget: float = 0.01  # DESIGN: 1 % of a step
    workup: str = "auto"
    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load_settings(start: Path) -> Settings:
    """Read the settings that hold in a folder.

    Args:
        start: where the search for a pyproject.toml begins; it goes on in the parents. Relative paths in the file are
            taken from the folder that holds it.

    Raises:
        UsageError: where the file cannot be read, a key is unknown or a value has the wrong type.

    Example:
        >>> load_settings(Path("/")) == Settings()
        True
    """
    file = find_pyproject(start)
    if file is None:
        return Settings()
    table = _table(file)
    readers = _readers(file.parent)
    values = {}
    for key, value in table.items():
        if key not in readers:
            raise UsageError(f"{file}: [tool.lossdoctor] has no key {key!r}{_nearest(key, list(readers))}")
        try:
            values[key.replace("-", "_")] = readers[key](value)
        except ValueError as error:
            raise UsageError(f"{file}: [tool.lossdoctor] {key} = {value!r}: {error}") from None
    return dataclasses.replace(Settings(), **values)


def find_pyproject(start: Path) -> Path | None:
    """Return the first pyproject.toml from a folder upwards, or None."""
    folder = start.absolute()
    return next((file for each in (folder, *folder.parents) if (file := each / "pyproject.toml").is_file()), None)


def parse_budget(value: object) -> float:
    """Turn a budget into a share of a step: `"1%"`, or a number below 1 that is the share itself.

    Raises:
        ValueError: where it is neither, or not above 0 and at most 100 %.

    Example:
        >>> parse_budget("0.5%")
        0.005
    """
    text = str(value).strip()
    number = text.removesuffix("%").strip()
    try:
        share = float(number) / 100 if text.endswith("%") else float(number)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1 or isinstance(value, bool) or (share == 1 and not text.endswith("%")):
        raise ValueError("expected a share of a step such as '1%', above 0 and at most 100%")
    return share


def parse_codes(value: object) -> tuple[str, ...]:
    """Turn codes, slugs or families into a tuple: a list of them, or one text with commas between.

    Example:
        >>> parse_codes("LOP001, lr-too-high")
        ('LOP001', 'lr-too-high')
    """
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("expected codes, slugs or families, such as ['LOP001', 'lr-too-high', 'NUM']")
    return tuple(part.strip() for part in parts if part.strip())


def _table(file: Path) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = file.read_bytes()
        if b"lossdoctor" not in text:
            return {}  # spares most projects the cost of the parser, and an error about a file that is not ours
        table: Any = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{file} is not valid TOML: {error}") from None
    for name in ("tool", "lossdoctor"):
        table = table.get(name, {}) if isinstance(table, dict) else table
    if not isinstance(table, dict):
        raise UsageError(f"{file}: tool.lossdoctor must be a table")
    return table


def _readers(folder: Path) -> dict[str, Callable[[Any], Any]]:
    return {
        "out": lambda value: folder / _text(value),
        "json": lambda value: value if value == "-" else str(folder / _text(value)),
        "html": lambda value: str(folder / _text(value)),
        "quiet": _flag,
        "select": parse_codes,
        "ignore": parse_codes,
        "fail-on": lambda value: _choice(value, FAIL_ON),
        "max-steps": _positive,
        "budget": parse_budget,
        "workup": lambda value: _choice(value, WORKUP),
        "devices": _tables,
    }


def _tables(value: object) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise ValueError("expected a table for each device")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a path as text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _positive(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("expected a whole number of at least 1")
    return value


def _choice(value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"expected one of {', '.join(allowed)}")
    return str(value)


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it knows {', '.join(known)}"
