"""Time data loaders, and know the one that feeds the training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lossdoctor.record.facts import loader_fact, way_to_data
from lossdoctor.record.places import user_place

if TYPE_CHECKING:
    from lossdoctor.record.events import Observer

DIVIDED = 16  # batches of which the rows and the collate function are timed apart, for a loader that works in this process


class Loaders:
    """Time the data loaders of one process.

    Args:
        observer: what watches the process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.seconds = 0.0  # since they were last asked for
        self.fact: dict[str, Any] = {}
        self.to_divide = DIVIDED
        self._parts: list[tuple[float, float]] = []  # seconds of a batch, and of its collate function

    def divide(self, original: Callable[[Any], Any], iterator: Any) -> Any:
        """Take a batch from a loader, timing its collate function apart; one of worker processes is only waited for."""
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        collate = getattr(fetcher, "collate_fn", None)
        if fetcher is None or collate is None or self.observer.passes.open is not None:
            return original(iterator)
        clock, spent = self.observer.clock, [0.0]

        def timed(rows: Any) -> Any:
            began = clock()
            try:
                return collate(rows)
            finally:
                spent[0] += clock() - began

        fetcher.collate_fn = timed
        began = clock()
        try:
            batch = original(iterator)
        finally:
            fetcher.collate_fn = collate
        self._parts.append((clock() - began, spent[0]))
        self.to_divide -= 1
        if not self.to_divide:
            self._tell()
        return batch

    def _tell(self) -> None:
        """Write which part of a batch's time was the collate function's; the first ones hold imports and caches."""
        whole, collate = (sum(times) for times in zip(*self._parts[DIVIDED // 2 :], strict=True))
        with suppress(Exception):
            self.observer.fact(None, "collate_share", round(collate / whole, 4) if whole > 0 else None)

    def gave(self, iterator: Any, began: float) -> None:
        """Note that a loader gave a batch; the last one before a training's first forward feeds it."""
        observer = self.observer
        self.seconds += observer.clock() - began
        if observer.looking and "forward" not in observer.places:
            try:
                place = user_place()
                if place is not None:
                    observer.places["loader"] = place
                    self.fact = loader_fact(iterator)
                observer.capture.held.loader = self.fact | way_to_data(iterator)
            except Exception as error:
                observer.broke("loaders", error)

    def ended(self, began: float) -> None:
        """Note the end of a loader's epoch."""
        self.seconds += self.observer.clock() - began
        self.observer.passes.loader_ended()

    def take_seconds(self) -> float:
        """Return the time that loaders took since last asked; it belongs to a validation pass, not to a step."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds
