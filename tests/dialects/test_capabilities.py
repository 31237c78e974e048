"""What is chosen by what a server can do, without one."""

from __future__ import annotations

from cerebro_db.database.dialects.choice import dialect_of


def test_only_settings_that_a_server_has_are_set() -> None:
    def names(version: int, has_segments: bool) -> set[str]:
        settings = dialect_of(version, has_segments).session_settings()
        return {text.split()[1] for text in settings}

    old, new = names(90426, True), names(150000, False)
    assert {"optimizer", "gp_vmem_idle_resource_timeout"} <= old - new
    assert {"jit", "idle_in_transaction_session_timeout", "idle_session_timeout"} <= new - old


def test_workers_are_bound_where_partitions_lie_on_segments() -> None:
    assert dialect_of(90426, True).training.binds_workers
    assert not dialect_of(150000, False).training.binds_workers
