"""The fix of a run as a change of the user's files: plain edits for what was confirmed, tried as a whole, written when asked."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.run import Location, Run, Training
from lossdoctor.launch.child import way_of_isolation
from lossdoctor.trials.confirm import Candidate, Confirmation
from lossdoctor.trials.edits import edited
from lossdoctor.trials.source import Source, diff, read_source
from lossdoctor.trials.trial import Trial

PLACES = ("step", "backward", "forward", "loss")


@dataclass
class Fix:
    """Hold the edits of one run.

    Args:
        sources: the user's files as they are, by path.
        texts: what they become.
        slugs: faults that the edits mend.
        without: faults for which no plain edit is known.
        trial: of the edited script; None where it could not be tried.
    """

    sources: dict[str, Source] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    slugs: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    trial: Trial | None = None

    @property
    def diff(self) -> str:
        """All edits as one unified diff; empty where there are none."""
        return "".join(diff(source, self.texts[path]) for path, source in self.sources.items())


def fix_of(confirmation: Confirmation, run: Run) -> Fix:
    """Return the edits that do what the confirmed treatments of a run do, and try them together.

    Args:
        confirmation: the trials of the run.
        run: what was recorded.
    """
    fix = Fix()
    for candidate in confirmation.needed:
        add(fix, candidate, run.trainings[candidate.finding.training])
    # Without namespaces a repetition cannot be shown another file than the user's own.
    if fix.texts and way_of_isolation() == "namespaces":
        first = next(each for each in confirmation.needed if each.finding.slug in fix.slugs)
        fix.trial = confirmation.confirmer.ask(first, (), fix.texts)
    return fix


def add(fix: Fix, candidate: Candidate, training: Training) -> None:
    """Add the edit for one fault, or note that there is none."""
    for path in _files(training, candidate.finding.where):
        source = fix.sources.get(path) or read_source(path)
        if source is None:
            continue
        now = Source(path, fix.texts.get(path, source.text))
        text = edited(
            now, dict(candidate.value), _moved(training, source, now), candidate.finding.where if now.text == source.text else None
        )
        if text is not None and text != now.text:
            fix.sources[path], fix.texts[path] = source, text
            fix.slugs.append(candidate.finding.slug)
            return
    fix.without.append(candidate.finding.slug)


def _files(training: Training, where: Location | None) -> Sequence[str]:
    places = [where, *(training.where(place) for place in PLACES)]
    return list(dict.fromkeys(place.file for place in places if place is not None))


def _moved(training: Training, before: Source, after: Source) -> Training:
    """Return the training with its places where an earlier edit has put them."""
    if before.text == after.text:
        return training
    matcher = difflib.SequenceMatcher(None, before.text.splitlines(), after.text.splitlines(), autojunk=False)
    now = {block.a + offset + 1: block.b + offset + 1 for block in matcher.get_matching_blocks() for offset in range(block.size)}
    places = training.fact("where") or {}
    kept = {name: [file, now[line]] for name, (file, line) in places.items() if file == before.path and line in now}
    return dataclasses.replace(training, facts={**training.facts, "where": kept})


def write(fix: Fix) -> list[Path]:
    """Write the edits into the user's files, each beside a copy of what it was, and return the copies.

    Raises:
        LossdoctorError: a file has changed since it was read, or cannot be written.
    """
    copies = []
    for path, source in fix.sources.items():
        file = Path(path)
        try:
            if file.read_text(encoding="utf-8") != source.text:
                raise LossdoctorError(f"{path} has changed since the trial; nothing was written to it")
            copy = _free(file)
            copy.write_bytes(file.read_bytes())
            file.write_text(fix.texts[path], encoding="utf-8")
        except OSError as error:
            raise LossdoctorError(f"{path} could not be edited: {error.strerror}") from error
        copies.append(copy)
    return copies


def _free(file: Path) -> Path:
    """Return a path for a copy that is not taken."""
    names = (file.with_name(f"{file.name}.orig{number or ''}") for number in range(1000))
    return next(name for name in names if not name.exists())
