"""Every signal that a run may hold: its unit, its shape, what it means, and how a user gets it when it is missing.

Shapes: `step` is one value per step; `sampled` one value at some steps; `parameters` one value per parameter tensor at
some steps (columns named); `row` a structured measurement at some steps; `fact` one value per training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shape = Literal["step", "sampled", "parameters", "row", "fact"]


@dataclass(frozen=True)
class Signal:
    """Describe a named measurement.

    Example:
        >>> SIGNALS["grad_norm"].unit
        'gradient norm'
    """

    name: str
    unit: str
    shape: Shape
    meaning: str
    remedy: str = "watch the run with `lossdoctor run`"


def _all() -> tuple[Signal, ...]:
    watch = "watch the run with `lossdoctor run`"
    evaluate = "evaluate on held-out data in the script, under torch.no_grad()"
    known = "use a loss of torch.nn or torch.nn.functional"
    return (
        # one value per step -------------------------------------------------------------------------------------
        Signal("loss", "loss", "step", "the training loss: the loss call's value where it is what backward was called on or a constant ratio of it, else the backward value", "log the training loss"),
        Signal("backward_value", "loss", "step", "sum of the values that backward was called on in this step", watch),
        Signal("backwards", "count", "step", "backward calls in this step", watch),
        Signal("call_value", "loss", "step", "mean value of the outermost known loss calls of this step's training forwards", known),
        Signal("lr", "1", "step", "learning rate of the first parameter group", "log the learning rate"),
        Signal("not_reset", "0 or 1", "step", "1 where no backward since this optimiser's last step found its gradients reset (None or zero)", watch),
        Signal("no_gradient", "0 or 1", "step", "1 where every gradient that the optimiser holds was None or zero when it stepped", watch),
        Signal("clip_norm", "gradient norm", "step", "norm before clipping, as clip_grad_norm_ returned it", watch),
        Signal("clip_limit", "gradient norm", "step", "limit that clip_grad_norm_ was given", watch),
        Signal("train_mode", "0 or 1", "step", "the outermost model's `training` flag at the forward that led to this step", watch),
        Signal("batch_rows", "count", "step", "first dimension of the outermost model's first tensor input", watch),
        Signal("wall", "s", "step", "time since the start of the run at the end of the step", watch),
        Signal("forward_seconds", "s", "step", "time inside the outermost model's forwards", watch),
        Signal("backward_seconds", "s", "step", "time inside backward", watch),
        Signal("step_seconds", "s", "step", "time inside the optimiser's step", watch),
        Signal("loader_seconds", "s", "step", "time inside DataLoader iterators' next, in the gap before this step", watch),
        Signal("gap_seconds", "s", "step", "time from the end of the last step to the next forward, validation passes excluded", watch),
        Signal("idle_seconds", "s", "step", "part of the gap in which the thread neither computed nor waited for a core; NaN where not measured", watch),
        Signal("gap_cpu_seconds", "s", "step", "thread CPU time within the gap; NaN where not measured", watch),
        # sampled ------------------------------------------------------------------------------------------------
        Signal("grad_norm", "gradient norm", "sampled", "2-norm of all gradients at the step, after clipping and unscaling", "log the gradient norm"),
        Signal("grad_norms", "gradient norm", "parameters", "2-norm of each parameter's gradient; NaN where it is None", watch),
        Signal("weight_norms", "weight norm", "parameters", "2-norm of each parameter", watch),
        Signal("update_ratios", "1", "parameters", "norm of the step's change over the norm before it, from 256 random elements of each parameter", watch),
        Signal("displacements", "1", "parameters", "norm of the change since the start over the norm at the start, from the same elements", watch),
        Signal("zero_rows", "share", "parameters", "share of a weight's output units whose weight and bias gradients are exactly 0; NaN where it does not apply", watch),
        Signal("memory", "bytes", "sampled", "resident memory of the process", watch),
        Signal("cpu_seconds", "s", "sampled", "CPU time of the training thread since it began", watch),
        Signal("queued_seconds", "s", "sampled", "time that the training thread could have run and waited for a core, since it began", watch),
        # rows ---------------------------------------------------------------------------------------------------
        Signal("batch", "", "row", "statistics of one training batch: inputs (list: shape, dtype, mean, std, min, max, finite, per-feature spread) and target (the same, classes)", watch),
        Signal("row_hashes", "", "row", "64-bit hashes of the rows of one training batch", watch),
        Signal("loss_call", "", "row", "one known loss call of a training forward: kind, shapes, value, what enters it", known),
        Signal("backward_graph", "", "row", "what the graph of a backward value shows: broadcast operands, softmax before the loss, detached parts", watch),
        Signal("kept_graphs", "", "row", "how many marked graphs of earlier steps are alive, where clearly more are than before", watch),
        Signal("activations", "", "row", "per layer: kind, share of exact zeros, units zero for the whole batch, saturated share, std", watch),
        Signal("modes", "", "row", "mode-sensitive layers (dropout, batch norm) in train and eval mode at a training forward", watch),
        Signal("coverage", "", "row", "which parameters of the model got a gradient, which the optimiser holds", watch),
        Signal("validation", "", "row", "one validation pass: rows, loss, accuracy, modes, hashes", evaluate),
        # what only logs hold ------------------------------------------------------------------------------------
        Signal("epoch", "epochs", "sampled", "epoch that a log counts at the step", "log the epoch beside the loss"),
        Signal("loss_scale", "1", "sampled", "scale of a half-precision loss", "log the scaler's scale"),
        Signal("skipped_steps", "count", "sampled", "steps that a loss scaler skipped, as a log tells", "log the skipped steps"),
        Signal("throughput", "1/s", "sampled", "samples, tokens or steps per second, as a log tells", "log the throughput"),
        Signal("log_seconds", "s", "sampled", "time of a step, as a log tells", "log the time of a step"),
        Signal("log_wait", "s", "sampled", "time of a step that went into waiting for data, as a log tells", "log the loader's time"),
        Signal("train_metric", "", "sampled", "score on the training data, as a log tells", "log a score of the training data"),
        Signal("train_correct", "share", "sampled", "accuracy on the training data, as a log tells", "log the training accuracy"),
        Signal("validation_metric", "", "sampled", "score on held-out data, as a log tells", evaluate),
        # facts --------------------------------------------------------------------------------------------------
        Signal("parameters", "", "fact", "names, shapes and counts of the parameters", watch),
        Signal("optimizer", "", "fact", "class name and the settings of its groups", watch),
        Signal("frozen_modules", "", "fact", "modules whose attribute `requires_grad` says other than their parameters", watch),
        Signal("schedules", "", "fact", "schedulers of the learning rate: class, settings, how often each was stepped, what a plateau was told; known at the end", watch),
        Signal("where", "", "fact", "file and line of loss, backward, step, forward, loader in the user's source", watch),
        Signal("loader", "", "fact", "settings of the data loader that feeds the training: workers, batch size, rows, rows of the data set that these are a part of", "feed the training from a torch DataLoader"),
        Signal("ranks", "", "fact", "what each rank of a distributed training measured: own seconds of its steps, hashes of its rows", "watch every rank: `torchrun ... -m lossdoctor run train.py`"),
        Signal("waits", "", "fact", "lines of the script at which the host waits for a value of the device: file, line, times and seconds of a step", "measure it with `lossdoctor speed`"),
        Signal("threads", "", "fact", "threads that one operation of PyTorch may use", watch),
        Signal("model", "", "fact", "class name, layers (name, kind, shape), number of parameters", watch),
    )


SIGNALS: dict[str, Signal] = {signal.name: signal for signal in _all()}
