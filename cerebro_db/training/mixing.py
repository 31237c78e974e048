"""Mixup: rows of a batch are mixed with others of it, and compared with the targets of both (Zhang et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Sets the numbers drawn here apart from those of the order of rows.
_MIXUP = 0x6D6978


class Partners(NamedTuple):
    """The rows that others are mixed with.

    Attributes:
        targets: of the partner of each row.
        shares: of the row itself, ``float32[rows]``, the same for all rows of a batch; its partner has the rest.
    """

    targets: np.ndarray
    shares: np.ndarray


def mixed(
    features: np.ndarray,
    targets: np.ndarray,
    alpha: float,
    seeds: Sequence[int],
    first: int,
    batch_size: int,
) -> tuple[np.ndarray, Partners]:
    """Rows of whole batches, mixed, and with whom.

    Args:
        features, targets: of the rows.
        alpha: of the Beta distribution of the shares.
        seeds: of the hop.
        first: number of the first batch in the hop.
        batch_size: rows of each batch but the last one.
    """
    partners = np.empty(len(features), np.int64)
    shares = np.empty(len(features), np.float32)
    for number, start in enumerate(range(0, len(features), batch_size), first):
        stop = min(start + batch_size, len(features))
        sequence = np.random.SeedSequence([_MIXUP, *seeds, number])
        generator = np.random.Generator(np.random.PCG64(sequence))
        shares[start:stop] = generator.beta(alpha, alpha)
        partners[start:stop] = start + generator.permutation(stop - start)
    own = shares.reshape(-1, *[1] * (features.ndim - 1))
    made: np.ndarray = own * features + (1 - own) * features[partners]
    return made, Partners(targets[partners], shares)
