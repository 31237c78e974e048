"""Penalties on the kernels of a net: sums of absolute values and of squares."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from cerebro_db.configs.grids.parameters import CompileParams


class Penalty:
    """The penalty that is added to a loss.

    Args:
        params: of a configuration.
        parameters: that are trained; those of two dimensions or more are kernels.
    """

    def __init__(self, params: CompileParams, parameters: Mapping[str, torch.Tensor]) -> None:
        self._kernels = [one for one in parameters.values() if one.dim() > 1]
        self.assign(params)

    def assign(self, params: CompileParams) -> None:
        """Take the strengths of a configuration."""
        self._l1, self._l2 = params.l1, params.l2

    @property
    def is_on(self) -> bool:
        """True if there is one."""
        return bool(self._kernels) and not (self._l1 is None and self._l2 is None)

    def __call__(self) -> torch.Tensor:
        """The penalty of the weights as they are."""
        total = torch.zeros(())
        for one in self._kernels:
            if self._l1 is not None:
                total = total + self._l1 * one.abs().sum()
            if self._l2 is not None:
                total = total + self._l2 * one.square().sum()
        return total
