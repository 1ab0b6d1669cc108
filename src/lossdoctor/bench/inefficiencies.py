"""What costs time or memory and can be planted: the conditions of the suite `speed`, each at three severities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from lossdoctor.bench.conditions import Condition, condition
from lossdoctor.bench.edit import Recipe
from lossdoctor.core.fault import Level, Plant

LEVELS: tuple[Level, ...] = ("mild", "middle", "severe")
Edit = tuple[str, str]
_ITEM = r"^( +)return self\.inputs\[index\], self\.targets\[index\]$"
_LOADER = r"^loader = DataLoader\((.*)\)$"
_BATCH = r"^BATCH = (\d+)$"
_FORWARD = r"output = model\(x_test\)"


@dataclass(frozen=True)
class Inefficiency:
    """Hold what is planted and how it is mended.

    Args:
        recipe: the one that it is planted in.
        condition: name, plants, and the causes that name it.
        mends: by severity the plant of the mended script; the recipe as it is where left out.

    Example:
        >>> inefficiencies()["slow-loader"].recipe
        'digits'
    """

    recipe: str
    condition: Condition
    mends: Mapping[Level, Plant] = field(default_factory=dict)

    def mended(self, recipe: Recipe, level: Level) -> Recipe:
        """Return the script without the inefficiency."""
        plant = self.mends.get(level)
        return recipe if plant is None else recipe.planted(plant)


@cache
def inefficiencies() -> dict[str, Inefficiency]:
    """Return all of them by name.

    Example:
        >>> len(inefficiencies())
        9
    """
    bottleneck, threads = ("input-bottleneck",), ("threads-oversubscribed",)
    slow = condition("slow-loader", "input-bottleneck").plants
    made = [
        Inefficiency("digits", Condition("slow-loader", slow, bottleneck)),
        Inefficiency("digits", Condition("one-worker", tuple(_one_worker()), bottleneck)),
        Inefficiency("images", Condition("threads", tuple(_threads()), threads)),
        Inefficiency("digits", Condition("tiny-batch", tuple(_tiny(1)), ("batch-too-small", "launch-bound")), _by_level(_tiny(4))),
        Inefficiency("sequences", Condition("padding", tuple(_padding()), ("padding-waste",))),
        Inefficiency("digits", Condition("per-row-collate", tuple(_collate()), bottleneck)),
        Inefficiency("digits", Condition("file-each-item", tuple(_file()), bottleneck)),
        Inefficiency("images", Condition("graphs-in-validation", tuple(_graphs(True)), ("grad-in-eval",)), _by_level(_graphs(False))),
        Inefficiency("digits", Condition("leak", tuple(_leak("")), ("graph-retained",)), _by_level(_leak(".item()"))),
    ]
    return {each.condition.name: each for each in made}


def _by_level(plants: Iterator[Plant]) -> dict[Level, Plant]:
    return {plant.level: plant for plant in plants}


def _one_worker() -> Iterator[Plant]:
    """A worker that needs so many seconds for a batch, and is alone."""
    for level, seconds in zip(LEVELS, (0.01, 0.02, 0.05), strict=True):
        also = (("data", _LOADER, r"loader = DataLoader(\1, num_workers=1, persistent_workers=True)"),)
        yield Plant(level, "data", _ITEM, rf"\1time.sleep({seconds} / BATCH)\n\g<0>", also=also)


def _threads() -> Iterator[Plant]:
    for level, count in zip(LEVELS, (8, 16, 32), strict=True):
        yield Plant(level, "data", _BATCH, rf"torch.set_num_threads({count})\n\g<0>")


def _tiny(factor: int) -> Iterator[Plant]:
    """Batches of some rows, or so many times as many; a training on them is cut short, since it has many steps."""
    for level, rows in zip(LEVELS, (4, 2, 1), strict=True):
        yield Plant(level, "data", _BATCH, f"BATCH = {rows * factor}", also=(("loop", r"^EPOCHS = .*", "EPOCHS = 1"),))


def _padding() -> Iterator[Plant]:
    """Zeros before each row: 57, 70 and 85 % of what the network walks through."""
    for level, count in zip(LEVELS, (32, 56, 136), strict=True):
        yield Plant(level, "data", r"^loader = ", rf"x_train = nn.functional.pad(x_train, (0, 0, {count}, 0))\n\g<0>")


def _collate() -> Iterator[Plant]:
    """Each row taken apart into numbers and put together again, so many times."""
    for level, times in zip(LEVELS, (1, 3, 8), strict=True):
        collate = (
            "def collate(rows):",
            f"    for _ in range({times}):",
            "        parts = [torch.tensor([float(value) for value in row.flatten()]).view(row.shape) for row, _ in rows]",
            "    return torch.stack(parts), torch.stack([target for _, target in rows])",
        )
        yield Plant(level, "data", _LOADER, "\\n".join((*collate, "", "", r"loader = DataLoader(\1, collate_fn=collate)")))


def _file() -> Iterator[Plant]:
    """The whole file read again for each row, so many times."""
    for level, times in zip(LEVELS, (1, 2, 5), strict=True):
        read = rf"\1inputs = [torch.load('rows.pt') for _ in range({times})][-1]\n\1return inputs[index], self.targets[index]"
        yield Plant(level, "data", _ITEM, read, also=(("data", r"^loader = ", r"torch.save(x_train, 'rows.pt')\n\g<0>"),))


def _graphs(grad: bool) -> Iterator[Plant]:
    """Validation that goes so many times over the data, with graphs or without."""
    context = "torch.enable_grad()" if grad else "torch.no_grad()"
    for level, times in zip(LEVELS, (1, 4, 12), strict=True):
        also = (("validation", _FORWARD, rf"output = [model(x_test) for _ in range({times})][-1]"),)
        yield Plant(level, "validation", r"torch\.no_grad\(\)", context, also=also)


def _leak(number: str) -> Iterator[Plant]:
    """The loss added up with its graph, or as a number; a figure of the outputs; a second loss of which backward is never called."""
    added = ("loss", "loss + output.pow(2).mean()", "loss + criterion(model(batch_x), batch_y)")
    for level, term in zip(LEVELS, added, strict=True):
        yield Plant(level, "loop", r"total \+= loss\.item\(\) \* len\(batch_x\)", f"total = total + ({term}){number} * len(batch_x)")
