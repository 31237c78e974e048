"""Limits of one driver of a run."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.postgres.relations import CallerPath
from cerebro_db.requests.fitting import ResumeRequest


@dataclass(frozen=True)
class Limits:
    """Limits of one driver of a run.

    Attributes:
        max_seconds: until it pauses the run; None for any time.
        num_workers: how many; None for as many as the run began with.
        any_version: whether it may go on with other versions of what computes.
        model_output_table: another name for the output; None for the one that the run began with.
        search_path: for that name.
    """

    max_seconds: float | None = None
    num_workers: int | None = None
    any_version: bool = False
    model_output_table: str | None = None
    search_path: CallerPath | None = None

    @classmethod
    def of(cls, request: ResumeRequest, search_path: CallerPath | None = None) -> Limits:
        """Limits of a call of ``cerebro_resume``; those of a run that is queued have no search path."""
        output = None if search_path is None else request.model_output_table
        known = request.max_seconds, request.num_workers, bool(request.any_version)
        return cls(*known, output, search_path)
