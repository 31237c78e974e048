"""What an ordinary user may do with tables of their own: the rights that training itself needs."""

from __future__ import annotations

from tests.security.conftest import Recruit, make_tables


def test_a_warm_start_takes_no_superuser(recruit: Recruit) -> None:
    warren = recruit("warren", "cerebro_user")
    make_tables(warren)
    fit = "SELECT cerebro_fit_multiple('packed', 'out', 'configs', {}, num_workers := 1{})"
    warren.rows(fit.format(2, ""))
    (before,) = warren.rows("SELECT training_loss_final FROM out_info")[0]
    run = warren.value(fit.format(3, ", warm_start := true"))
    status, after = warren.rows("SELECT status, training_loss_final FROM out_info")[0]
    assert (status, after < before) == ("finished", True)
    history = warren.rows("SELECT iteration, run_id = %s FROM out_history ORDER BY 1", (run,))
    assert history == [(2, False), (5, True)]
