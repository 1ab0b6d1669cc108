"""Time data loaders, and know the one that feeds the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lossdoctor.record.facts import loader_fact, way_to_data
from lossdoctor.record.places import user_place

if TYPE_CHECKING:
    from lossdoctor.record.events import Observer


class Loaders:
    """Time the data loaders of one process.

    Args:
        observer: what watches the process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.seconds = 0.0  # since they were last asked for
        self.fact: dict[str, Any] = {}

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
