"""cerebro_gpu_configuration on a server without segments, and sessions that used GPUs."""

from __future__ import annotations

import psycopg2
import pytest

from conftest import Sql

FAKE = (
    "CREATE OR REPLACE FUNCTION cerebro._gpus(source text) RETURNS text[] LANGUAGE sql AS "
    "$$SELECT ARRAY[source || ' 0', source || ' 1']$$"
)
HOSTS = "SELECT DISTINCT hostname FROM gp_segment_configuration WHERE content >= 0"


def test_there_is_only_one_host(sql: Sql, has_segments: bool) -> None:
    """It has no name but on a server with segments, all of which are here on this machine."""
    host = sql.value(HOSTS) if has_segments else "localhost"
    sql.run("SELECT cerebro_gpu_configuration('none_here')")
    assert sql.fetch("SELECT hostname, gpu_descr FROM none_here") == []
    sql.run(FAKE)
    sql.run("SELECT cerebro_gpu_configuration('by_default', NULL)")
    sql.run("SELECT cerebro_gpu_configuration('asked', ' NVIDIA ')")
    rows = [(host, "tensorflow 0"), (host, "tensorflow 1")]
    assert sql.fetch("SELECT * FROM by_default ORDER BY 2") == rows
    assert sql.column("SELECT gpu_descr FROM asked ORDER BY 1") == ["nvidia 0", "nvidia 1"]
    with pytest.raises(psycopg2.Error, match="source: got 'cuda'; allowed") as failure:
        sql.run("SELECT cerebro_gpu_configuration('wrong', 'cuda')")
    assert failure.value.pgcode == "22023"
    with pytest.raises(psycopg2.errors.DuplicateTable, match="asked exists already"):
        sql.run("SELECT cerebro_gpu_configuration('asked')")
