"""Experiments in a treated repetition, before it ends: what a treatment uncovers is asked as a watched run is."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from lossdoctor.core.run import Training
from lossdoctor.core.store import load_run
from lossdoctor.diagnose import diagnose
from lossdoctor.diagnose.plan import next_experiment, parameters
from lossdoctor.launch.ask import Ask
from lossdoctor.trials.compare import SMALLEST, compared

SECONDS = 10.0  # at most, as the least that a watched run's work-up may take
# Under it nothing is learned after some steps: experiments that train, and rules that look for learning, would tell of the treatment.
# Under weights of classes training's loss has another unit than validation's, which would look as if unseen rows were not learned.
STILLS = frozenset(("stop_early", "class_weights"))


@dataclass(frozen=True)
class WorkUp:
    """Do experiments in a repetition, where its treatment moved the signal that it should.

    Args:
        control: what it is compared with: the watched run's training.
        index: of the training that is looked at.
        signal: that the treatment should move.
        up: whether it should rise.
        steps: that are compared.
        treatments: names of those that are in force.
        until: when it must have ended, on `time.monotonic`.
    """

    control: Training
    index: int
    signal: str
    up: bool
    steps: int
    treatments: frozenset[str]
    until: float

    def __call__(self, ask: Ask) -> None:
        """Ask the repetition's process, cheapest first, as long as something is open and time is left."""
        folder = Path((ask({}) or {}).get("folder", ""))
        until = min(self.until, time.monotonic() + SECONDS)
        asked: list[str] = []
        while not self.treatments & STILLS:
            run = load_run(folder)
            if len(run.trainings) <= self.index or not (asked or self._moved(run.trainings[self.index])):
                return
            training = run.trainings[self.index]
            name = next_experiment(diagnose(run), training, asked=asked)
            left = until - time.monotonic()
            if name is None or left <= 0:
                return
            answer = ask({"experiment": name, "seconds": left, "parameters": parameters(training)})
            if answer is None:
                return
            asked.append(name)
            with (folder / "record-workup-0000.jsonl").open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(answer) + "\n")

    def _moved(self, treated: Training) -> bool:
        found = compared(self.signal, self.control, treated, self.steps, up=self.up)
        return found is not None and found[2] >= SMALLEST
