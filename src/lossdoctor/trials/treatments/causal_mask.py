"""Attention that sees no later position, where it is torch's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks) -> None:
    """Hide later positions from self-attention: that of `nn.MultiheadAttention`, of the encoder layer, and of the function."""
    inside = [0]  # a module's own call of the function: whether it is self-attention is known to the module only

    def function(original: Any) -> Any:
        def attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **rest: Any) -> Any:  # fmt: skip  # noqa: E501
            length = query.shape[-2]
            if not inside[0] and not is_causal and length == key.shape[-2]:
                attn_mask = masked(hooks, attn_mask, length, query.device, hides=False)
            return original(query, key, value, attn_mask, dropout_p, is_causal, **rest)

        return attend

    def attention(original: Any) -> Any:
        def forward(self: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
            if query is key and not query.is_nested:
                names = ("key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal")
                kwargs |= dict(zip(names, args, strict=False))
                length = query.shape[-2] if self.batch_first or query.dim() == 2 else query.shape[0]
                kwargs["attn_mask"] = masked(hooks, kwargs.get("attn_mask"), length, query.device, hides=True)
                args = ()
            inside[0] += 1
            try:
                return original(self, query, key, value, *args, **kwargs)
            finally:
                inside[0] -= 1

        return forward

    def encoder(original: Any) -> Any:
        def forward(self: Any, src: Tensor, mask: Any = None, *args: Any, **kwargs: Any) -> Any:
            name = "src_mask" if isinstance(self, nn.TransformerEncoderLayer) else "mask"
            mask = kwargs.pop(name, mask)
            if not src.is_nested:
                attention = self.self_attn if name == "src_mask" else self.layers[0].self_attn
                length = src.shape[-2] if attention.batch_first or src.dim() == 2 else src.shape[0]
                mask = masked(hooks, mask, length, src.device, hides=True)
            return original(self, src, mask, *args, **kwargs)

        return forward

    hooks.wrap(functional, "scaled_dot_product_attention", function)
    hooks.wrap(nn.MultiheadAttention, "forward", attention)
    for kind in (nn.TransformerEncoderLayer, nn.TransformerEncoder):
        hooks.wrap(kind, "forward", encoder)


def masked(hooks: Hooks, mask: Any, length: int, device: torch.device, *, hides: bool) -> Tensor:
    """Return a mask that hides later positions besides what it hides already.

    Args:
        mask: the script's; None where it has none.
        length: of the sequence.
        hides: whether True in a mask of booleans hides a position (in modules) or shows it (in the function).
    """
    later = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
    if isinstance(mask, Tensor):
        own = mask if mask.dtype == torch.bool else mask == float("-inf")
        hidden = own if hides or mask.dtype != torch.bool else ~own
        if bool(hidden.expand(*hidden.shape[:-2], length, length)[..., later].all()):
            return mask
    if length > 1:
        hooks.note("causal_mask")
    if not isinstance(mask, Tensor):
        return later if hides else ~later
    if mask.dtype != torch.bool:
        return mask.masked_fill(later, float("-inf"))
    return mask | later if hides else mask & ~later
