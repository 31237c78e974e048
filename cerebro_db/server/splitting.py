"""Entry of cerebro_train_test_split."""

from __future__ import annotations

from typing import Any

from cerebro_db.packing import splitting
from cerebro_db.packing.splitting import SplitRequest
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of


@entry_of("cerebro_train_test_split")
def train_test_split(
    plpy: Any,
    gd: dict[str, Any],
    source_table: str | None,
    output_table: str | None,
    train_proportion: float | None,
    test_proportion: float | None,
    grouping_cols: str | None,
    target_cols: str | None,
    with_replacement: bool | None,
    separate_output_tables: bool | None,
    seed: int | None,
    replace: bool | None,
) -> None:
    """Split the rows of a table at random."""
    request = SplitRequest(
        source_table,
        output_table,
        train_proportion,
        test_proportion,
        grouping_cols,
        target_cols,
        with_replacement,
        separate_output_tables,
        seed,
        replace,
    )
    with caller_session(plpy, writes=True) as session:
        split = splitting.split(session, request)
    plpy.notice(str(split))
