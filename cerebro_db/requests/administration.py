"""The version, settings, roles and outputs."""

from __future__ import annotations

from cerebro_db.requests import declared as sql


@sql.function(
    "cerebro_version", "text", entry="settings.installed", volatility="STABLE", job=sql.READS
)
class VersionRequest(sql.Request):
    """The version of Cerebro-DB that runs in this server"""


@sql.function("cerebro_set", "void", entry="settings.set_value")
class SettingRequest(sql.Request):
    """Sets what holds for the whole database, see cerebro.settings; NULL brings the default back. For members of
    cerebro_admin.

    Attributes:
        name: of the setting
        value: its new value, as a text; NULL brings the default back
    """

    name: sql.Text
    value: sql.Text


@sql.function("cerebro_drop_outputs", "SETOF text", entry="results.drop_outputs_of")
class DropOutputsRequest(sql.Request):
    """Drops a table that Cerebro-DB made and those beside it, such as <output_table>_summary, in the transaction
    of the caller; returns their names. Refuses tables of others, and those that Cerebro-DB did not make.

    Attributes:
        output_table: the name that was given to the function which made the tables, such as `iris` for
            `iris_train` and `iris_test`; perhaps some of them are gone already
    """

    output_table: sql.Text


@sql.function("cerebro_reassign_owned", "bigint", job=sql.ATTENDED)
class ReassignOwnedRequest(sql.Request):
    """Gives the runs, registered models, jobs and schedules of a role to another one, also of a role that was
    dropped, or is not in the cluster where a dump was restored; returns how many. For superusers. Tables are
    given by REASSIGN OWNED or ALTER TABLE.

    Attributes:
        owner: name of the role whose they are, or were
        new_owner: name of a role that is there; also that of `owner`, where a role of that name was made
            since
    """

    owner: sql.Text
    new_owner: sql.Text


@sql.function(
    "cerebro_gpu_configuration",
    "void",
    entry="settings.gpu_configuration",
    job=sql.Job(makes="output_table"),
)
class GpuRequest(sql.Request):
    """Lists the GPUs of each host that computes. source: tensorflow, torch, or nvidia for what nvidia-smi tells. Makes
    output_table with hostname and gpu_descr, a row for each GPU.

    Attributes:
        output_table: made, with a row for each GPU; without rows where there is none
        source: `'tensorflow'` or `'torch'`: what the framework sees, which is what training can use. It is asked
            in a process of its own and takes seconds where there is a GPU. `'nvidia'`: what `nvidia-smi -L`
            tells. Who cannot be asked has none
        replace: as in `cerebro_pack`
    """

    output_table: sql.Text
    source: sql.Text = "tensorflow"
    replace: sql.Flag = False
