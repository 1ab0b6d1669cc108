"""What a test can assert of a model, a batch and a loss; the fixture `doctor` of the pytest plugin gives these."""

from __future__ import annotations

import copy
import math
from typing import Any

TOLERANCE = 0.25  # share of the expected first loss: default starts lie within 10 %, a start twice too large above 50 % (field guide)
_NAMED = 5  # parameters named in a failure


class Assertions:
    """Assert what should hold before a long run; models are copied, and the random state is left as it was."""

    def assert_first_loss(
        self,
        model: Any,
        batch: Any,
        loss_fn: Any,
        *,
        classes: int | None = None,
        expected: float | None = None,
        tolerance: float = TOLERANCE,
    ) -> None:
        """Assert that an untrained model's loss is that of guessing.

        Args:
            model: untrained.
            batch: a pair of inputs and target.
            loss_fn: takes outputs and target and returns one number.
            classes: number of classes; the expectation is ln(classes).
            expected: the expectation itself; where both are left out, what the best constant answer to these targets gives.
            tolerance: share of the expectation that the loss may be away from it.

        Raises:
            AssertionError: it is not.
            UsageError: where model, batch or loss is not what it should be, or nothing to expect is known.

        Example:
            >>> import torch
            >>> batch = torch.randn(64, 8), torch.randint(0, 10, (64,))
            >>> Assertions().assert_first_loss(torch.nn.Linear(8, 10), batch, torch.nn.functional.cross_entropy, classes=10)
        """
        __tracebackhide__ = True
        loss, guess = _first_loss(model, batch, loss_fn)
        wanted, why = _expectation(classes, expected, guess)
        if abs(loss - wanted) <= tolerance * abs(wanted):
            return
        raise AssertionError(f"first loss {loss:.4g}, expected {wanted:.4g} ({why}): {_verdict(loss, wanted)}")

    def assert_memorizes(self, make_model: Any, batch: Any, loss_fn: Any, *, below: float = 0.01, steps: int = 300) -> None:
        """Assert that the model can learn one batch by heart, at one of three rates.

        Args:
            make_model: returns a fresh model; a model itself is copied.
            batch: a pair of inputs and target, 10 to 50 examples.
            loss_fn: takes outputs and target and returns one number.
            below: loss at which the batch counts as memorised.
            steps: for each rate, at most.

        Raises:
            AssertionError: it cannot: the model is too small, or the way from input to loss is broken.
            UsageError: where model, batch or loss is not what it should be.
        """
        __tracebackhide__ = True
        from lossdoctor.routine import can_memorize

        done = can_memorize(make_model, batch, loss_fn, steps=steps, below=below)
        if done.best < below:
            return
        tried = ", ".join(f"{min(losses):.3g} at rate {rate:g}" for rate, losses in done.curves.items())
        raise AssertionError(
            f"the batch was not memorised in {steps} steps: loss {done.start:.3g} to {done.best:.3g}, expected below {below:g} ({tried}). "
            "The model is too small for these examples, dead at its start, or cut off from its inputs or its loss."
        )

    def assert_all_parameters_learn(self, model: Any, batch: Any, loss_fn: Any) -> None:
        """Assert that every parameter that requires a gradient gets one that is not zero.

        Args:
            batch: a pair of inputs and target.
            loss_fn: takes outputs and target and returns one number.

        Raises:
            AssertionError: some get none; they are named.
            UsageError: where model, batch or loss is not what it should be.
        """
        __tracebackhide__ = True
        missing, zero = _without_gradient(model, batch, loss_fn)
        told = [f"{words}: {_some(names)}" for words, names in (("no gradient", missing), ("a gradient of zero", zero)) if names]
        if told:
            raise AssertionError("some parameters do not learn from this batch. " + "; ".join(told))

    def assert_no_batch_mixing(self, model: Any, batch: Any) -> None:
        """Assert that the output for one example does not depend on the others, with dropout off and batch norm fixed.

        Args:
            batch: inputs, or a pair of inputs and target.

        Raises:
            AssertionError: it does.
            UsageError: where the model fails, or does not return one output for each example.
        """
        __tracebackhide__ = True
        facts = _mixing(model, batch)
        moved = max(facts["others"], facts["unequal"])
        if moved > 1e-3:
            how = "another example's input moves the output" if facts["others"] > 1e-3 else "equal examples get other outputs"
            raise AssertionError(
                f"examples of a batch influence each other: {how}, by {moved:.3g} of its spread. "
                "Look for a view or reshape across the first axis, a softmax over it, or a layer that takes the batch for time."
            )


def _first_loss(model: Any, batch: Any, loss_fn: Any) -> tuple[float, float | None]:
    """Return the loss of a copy, and what guessing gives where it is known."""
    from lossdoctor.experiments.captured import captured, made
    from lossdoctor.experiments.replay import Replay, described, untouched

    with untouched():
        held = captured(made(model).train(), [batch], loss_fn)
        replay = Replay(held, of_model=False)
        step = replay.batches[0]
        call = described(replay, replay.start(), step, replay.constants(step))
    return float(step.value), (call or {}).get("guess_loss")


def _expectation(classes: int | None, expected: float | None, guess: float | None) -> tuple[float, str]:
    from lossdoctor.core.errors import UsageError

    if classes is not None:
        return math.log(classes), f"ln {classes}, guessing among {classes} classes"
    if expected is not None:
        return expected, "as given"
    if guess is None:
        raise UsageError("assert_first_loss: of this loss it is not known what guessing gives; give classes= or expected=")
    return float(guess), "what the best constant answer to these targets gives"


def _verdict(loss: float, wanted: float) -> str:
    if not math.isfinite(loss):
        return "the loss is no number before the first step"
    if loss > wanted:
        return "the start or the inputs are too large, or the loss is fed what it does not expect"
    return "the model knows something of the answer, there are fewer classes, or the loss is averaged over more than it should be"


def _without_gradient(model: Any, batch: Any, loss_fn: Any) -> tuple[list[str], list[str]]:
    from lossdoctor.experiments.captured import forward, made
    from lossdoctor.experiments.replay import untouched, without_dropout

    with untouched():
        fresh = made(model).train()
        for parameter in fresh.parameters():
            parameter.grad = None
        with without_dropout([fresh]):
            forward(fresh, batch, loss_fn).backward()  # type: ignore[no-untyped-call]
        learning = [(name, parameter.grad) for name, parameter in fresh.named_parameters() if parameter.requires_grad]
    zero = [name for name, gradient in learning if gradient is not None and not bool(gradient.any())]
    return [name for name, gradient in learning if gradient is None], zero


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest


def _mixing(model: Any, batch: Any) -> dict[str, Any]:
    from lossdoctor.core.errors import UsageError
    from lossdoctor.experiments import mixing
    from lossdoctor.experiments.captured import captured, made
    from lossdoctor.experiments.replay import Deadline, Replay, ReplayRefused, untouched
    from lossdoctor.record.program import tensors

    given = batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else batch

    def total(output: Any, target: Any) -> Any:
        return sum(each.mean() for each in tensors(output) if each.is_floating_point())

    with untouched():
        held = captured(copy.deepcopy(made(model)), [(given, None)], total)
        try:
            return mixing.measure(Replay(held), Deadline.after(30.0), {})
        except ReplayRefused as refusal:
            raise UsageError(f"assert_no_batch_mixing: {refusal}") from None
