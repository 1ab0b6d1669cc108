"""Read the recipes and edit their marked places: a plant makes a healthy script sick."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from lossdoctor.core.errors import LossdoctorError, UsageError
from lossdoctor.core.fault import Plant

FOLDER = Path(__file__).parent / "recipes"
PLACES = ("data", "model", "loss", "optimiser", "validation", "loop")
_PLACE = re.compile(r"^# place: (?P<name>\w+)\n(?P<body>.*?)^# end$", re.MULTILINE | re.DOTALL)
_KINDS = re.compile(r"^# kind: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """Hold a healthy script of the bench.

    Args:
        name: file name without its ending.
        source: the script's text.
        kinds: its kind, then its tags, as its `# kind:` line gives them.

    Example:
        >>> Recipe("tiny", "# place: loop\\noptimizer.zero_grad()\\n# end\\n", ("classifier",)).place("loop")
        'optimizer.zero_grad()\\n'
    """

    name: str
    source: str
    kinds: tuple[str, ...]

    def place(self, name: str) -> str:
        """Return the text of a marked place; raise `LossdoctorError` unless it is marked exactly once."""
        found = [match["body"] for match in _PLACE.finditer(self.source) if match["name"] == name]
        if len(found) != 1:
            raise LossdoctorError(f"recipe {self.name!r} marks the place {name!r} {len(found)} times; it must be marked once")
        return found[0]

    def takes(self, plant: Plant) -> bool:
        """Tell whether a plant is meant for this recipe: it names no kinds, or one of the recipe's."""
        return not plant.kinds or bool(set(plant.kinds) & set(self.kinds))

    def edited(self, place: str, old: str, new: str) -> Recipe:
        """Return the recipe with one edit in one place.

        Args:
            place: name of the marked place.
            old: regular expression (`^` and `$` match at lines) that must match exactly once within the place.
            new: replacement, may refer to groups.

        Raises:
            LossdoctorError: where the expression matches never or more than once.
        """
        body = self.place(place)
        count = len(re.findall(old, body, re.MULTILINE))
        if count != 1:
            raise LossdoctorError(f"{old!r} matches {count} times in the place {place!r} of recipe {self.name!r}; it must match once")
        after = re.sub(old, new, body, flags=re.MULTILINE)
        return replace(self, source=self.source.replace(f"# place: {place}\n{body}", f"# place: {place}\n{after}"))

    def planted(self, plant: Plant) -> Recipe:
        """Return the recipe made sick by a plant: its main edit, then the further ones in their order."""
        sick = self
        for place, old, new in ((plant.place, plant.old, plant.new), *plant.also):
            sick = sick.edited(place, old, new)
        return sick

    def with_constant(self, name: str, value: int) -> Recipe:
        """Return the recipe with another whole number for a constant such as `SEED` or `EPOCHS`."""
        source, count = re.subn(rf"^{name} = \d+$", f"{name} = {value}", self.source, flags=re.MULTILINE)
        if count != 1:
            raise LossdoctorError(f"recipe {self.name!r} sets {name} {count} times; it must set it once")
        return replace(self, source=source)


@cache
def recipes() -> dict[str, Recipe]:
    """Read all recipes, by name.

    Example:
        >>> recipes()["digits"].kinds[0]
        'classifier'
    """
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.py")) if path.stem != "__init__"}


def find_recipe(name: str) -> Recipe:
    """Return the recipe of a name; raise `UsageError` naming the known ones where there is none."""
    if name not in recipes():
        raise UsageError(f"no recipe is called {name!r}; there are: {', '.join(recipes())}")
    return recipes()[name]


def _read(path: Path) -> Recipe:
    source = path.read_text(encoding="utf-8")
    kinds = _KINDS.search(source)
    if kinds is None:
        raise LossdoctorError(f"recipe {path.stem!r} has no line '# kind: ...'")
    return Recipe(path.stem, source, tuple(kind.strip() for kind in kinds[1].split(",")))
