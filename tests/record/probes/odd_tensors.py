"""Tensors that a probe may meet and must survive."""

import warnings

import torch
from torch.nn.parameter import UninitializedParameter


class Labelled(torch.Tensor):
    """A user's own subclass, as fastai has them."""


class Distributed(torch.Tensor):
    """Stands for a DTensor: `to_local` gives the part of this process, anything else would need the other ranks."""

    def to_local(self):
        return self.as_subclass(torch.Tensor)


def odd_tensors():
    """One of each kind, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {
            "scalar": torch.tensor(2.0),
            "empty": torch.empty(0, 3),
            "no columns": torch.empty(3, 0),
            "bool": torch.tensor([True, False, True]),
            "bytes": torch.arange(6, dtype=torch.uint8).reshape(2, 3),
            "complex": torch.tensor([[3 + 4j, 0], [1j, 1]]),
            "conjugate": torch.tensor([[3 + 4j, 0], [1j, 1]]).conj(),
            "half": torch.full((10, 10), 3000.0, dtype=torch.float16),
            "bfloat16": torch.ones(3, 2, dtype=torch.bfloat16),
            "float8": torch.randn(4, 4).to(torch.float8_e4m3fn),
            "not finite": torch.tensor([[float("nan"), 1.0], [float("inf"), float("-inf")]]),
            "transposed": torch.arange(6.0).reshape(2, 3).t(),
            "expanded": torch.ones(3, 1).expand(3, 4),
            "sparse": torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], [1.0, 2.0, 4.0], (2, 2)),
            "csr": torch.eye(3).to_sparse_csr(),
            "nested": torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)]),
            "jagged": torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)], layout=torch.jagged),
            "meta": torch.empty(3, 2, device="meta"),
            "quantised": torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8),
            "uninitialised": UninitializedParameter(),
            "subclass": torch.ones(3, 2).as_subclass(Labelled),
            "distributed": torch.ones(3, 2).as_subclass(Distributed),
            "six dimensions": torch.ones(2, 1, 2, 1, 2, 1),
        }
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            found["fake"] = torch.ones(3, 2)
        return found


ODD = odd_tensors()
