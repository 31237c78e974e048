"""Jobs and schedules."""

from __future__ import annotations

from typing import Literal

from cerebro_db.requests import declared as sql


@sql.function("cerebro_work", "integer", job=sql.ATTENDED)
class WorkRequest(sql.Request):
    """Starts jobs that wait, and those that were under way when the server ended; forgets runs and jobs that are
    older than the setting keep_runs. pg_cron and cerebro daemon call it every minute, and nobody else has to.
    Returns how many jobs were started.
    """


@sql.function("cerebro_wait", "text", job=sql.ATTENDED)
class WaitRequest(sql.Request):
    """Waits until a run has ended, with the job that it is of; returns its status, which is queued or running
    where the time is over before.

    Attributes:
        run_id: which run
        timeout: such as `'10 minutes'`; default: any time
    """

    run_id: sql.BigInt
    timeout: sql.Interval = None


@sql.function("cerebro_wait_job", "text", job=sql.ATTENDED)
class WaitJobRequest(sql.Request):
    """Waits until a job has ended; returns its status, which is queued or running where the time is over before.

    Attributes:
        job_id: which job
        timeout: as above
    """

    job_id: sql.BigInt
    timeout: sql.Interval = None


@sql.function("cerebro_cancel_job", "text", entry="jobs.cancel", job=sql.ATTENDED)
class CancelJobRequest(sql.Request):
    """Stops a job, whether it waits or is under way; its run, where it has one, can be resumed. Returns the status
    afterwards.

    Attributes:
        job_id: a job that is `queued`, `running` or `interrupted`
    """

    job_id: sql.BigInt


@sql.function(
    "cerebro_promote_if_better",
    "integer",
    entry="jobs.promote",
    job=sql.Job(reads=("validation_table",)),
)
class PromotionRequest(sql.Request):
    """Registers the best model of a finished run, or that of mst_key, and gives it the alias, such as
    model:digits@champion, if it is better on the validation table of the run than the version that has the
    alias, or where none has. Both are scored anew: on the packed rows, or, where one of them was trained with
    another encoding or other classes, on the raw rows that these were packed from, each by its own encoding.
    validation_table: other rows, packed or raw. version: a registered version of the model competes, not one of a
    run. Returns the version, NULL where it is no better. The lineage of a new version tells what was compared.

    Attributes:
        run_id: a run whose output tables are there, with a validation table unless `validation_table` names
            one; NULL with `version`
        model: a model of the calling role with an alias, such as `'model:plants@champion'`; the model is made
            where there is none
        mst_key: which model of the run; default: the first of `cerebro.leaderboard`
        validation_table: other rows to compare by: a packed table, or a table or view of raw rows with the
            columns that the two were trained on
        version: of the model, such as that of `cerebro_ensemble` or `cerebro_calibrate`: it competes for the
            alias; with `validation_table`, and without `mst_key`
    """

    run_id: sql.BigInt
    model: sql.Text
    mst_key: sql.Integer = None
    validation_table: sql.Text = None
    version: sql.Integer = None


@sql.function("cerebro_submit", "bigint", entry="jobs.submit", job=sql.ATTENDED)
class SubmitRequest(sql.Request):
    """Makes calls once, one after another, as a job that needs no session, and returns its job_id. calls,
    on_success and priority as in cerebro_schedule. Any function that changes data may be called. Everything is
    checked now.

    Attributes:
        calls, on_success, priority: as in [cerebro_schedule](#cerebro_schedule); `replace` may be left out,
            and is `false` then
    """

    calls: sql.Json
    on_success: sql.Text = None
    priority: sql.Priority = 0


@sql.function("cerebro_schedule", "void", entry="jobs.schedule", job=sql.ATTENDED)
class ScheduleRequest(sql.Request):
    """Makes calls again and again, as a job of the caller each time: cron such as 0 3 * * *; calls: an object with
    the functions by name, in their order, and their arguments by name; any function that changes data may be
    called. Everything is checked now. on_success: such as model:digits@champion, for cerebro_promote_if_better.
    timer: pg_cron, crontab (the line that cerebro schedule --print writes) or daemon (the program cerebro
    daemon); default: pg_cron where it is in this database, else daemon. A schedule of that name gives way.

    Attributes:
        name: of the schedule, up to 63 characters
        cron: when: minute, hour, day of the month, month and day of the week, such as `'0 3 * * *'`; numbers,
            names such as `MON`, `*`, `/`, `-` and `,`. pg_cron goes by the time zone that it is set to (GMT),
            other timers by that of their machine
        calls: a JSON object: functions by name, in the order in which they are called, each with an object of
            its arguments by name. Any function that changes data may be called: all but those that only read
            (`cerebro_predict_row`, `cerebro_export`, `cerebro_importance`, ...) and those about jobs
            themselves. A function with an argument `replace` takes `"replace": true`, since there is a table
            from the second time on. What a call makes need not be there yet for those that follow. A `run_id`
            that is left out is the run of the call before
        on_success: an alias, such as `'model:plants@champion'`: the best model of the last run competes for
            it when all is done, as with `cerebro_promote_if_better`. The run needs a `validation_table`;
            where that is packed with another encoding than the champion has, the raw rows that it was packed
            from must still be there then
        priority: of the jobs
        timer: what starts the schedule: `'pg_cron'`, which must be in this database; `'daemon'`: the program
            [`cerebro daemon`](../jobs.md#without-pg_cron); `'crontab'`: the line that `cerebro schedule
            --print` writes. Default: pg_cron where it is in this database and the role may use it, else the
            daemon, with a NOTICE
    """

    name: sql.Text
    cron: sql.Text
    calls: sql.Json
    on_success: sql.Text = None
    priority: sql.Priority = 0
    timer: Literal["pg_cron", "crontab", "daemon"] | None = None


@sql.function("cerebro_unschedule", "void", entry="jobs.unschedule", job=sql.ATTENDED)
class UnscheduleRequest(sql.Request):
    """Ends a schedule; a job of it that goes on does so.

    Attributes:
        name: of a schedule of the calling role
    """

    name: sql.Text


@sql.function("cerebro_start_schedule", "bigint", entry="jobs.start_schedule", job=sql.ATTENDED)
class StartScheduleRequest(sql.Request):
    """Makes the calls of a schedule now, as a job; returns its job_id. Where the one before still goes on it is
    skipped, which is a job as well, and NULL is returned. Timers call it.

    Attributes:
        name: of a schedule of the calling role
    """

    name: sql.Text
