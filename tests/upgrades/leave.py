"""Makes a database as a released version leaves it: ``left_by_<version>.sql.gz`` beside this file.

    git worktree add /tmp/released v0.1.0 && /tmp/released/scripts/setup
    PYTHONPATH=tests .cerebro/venv/bin/python -m tests.upgrades.leave /tmp/released/.cerebro/venv/bin/cerebro

It is made by the released package itself: its own server, installation, runs, a registered model, and a run that is paused. Of
the machine on which it is made, its paths are left out. The oldest PostgreSQL that is supported makes it: a dump can be restored
by later ones, not by earlier ones.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2

HERE = Path(__file__).parent
EPOCHS, PARTITIONS = 8, 3

# What a run of 0.1.0 has kept of a packed table, beside what its query tells of the rows: see ``fingerprint``.
FACTS = (
    "((PackedInput(name='features', shape=(4,), dtype='float32', type='double precision[]'),), "
    "(PackedTarget(name='label', kind='class', shape=(), dtype='int32', type='text', category='S', num_classes=3, "
    "classes_found=3, class_values=('class 0', 'class 1', 'class 2'), "
    """class_array='{"class 0","class 1","class 2"}'),), 1.0, """
    "(PartitionInfo(partition_key=0, rows=40, buffers=((0, 20), (1, 20)), segment_key=None), "
    "PartitionInfo(partition_key=1, rows=40, buffers=((0, 20), (1, 20)), segment_key=None), "
    "PartitionInfo(partition_key=2, rows=40, buffers=((0, 20), (1, 20)), segment_key=None)))"
)
ROWS = """
SELECT md5(string_agg(q.told, ',' ORDER BY q.partition_key, q.buffer_id))
  FROM (SELECT p.partition_key, p.buffer_id, concat_ws('/', p.partition_key, p.buffer_id, p.xmin::text,
               octet_length(p.features)) AS told
          FROM public.points_packed p OFFSET 0) AS q
"""


def fingerprint(sql: Any) -> str:
    """Fingerprint of the packed table, as 0.1.0 has it."""
    rows = sql.value(ROWS)
    return hashlib.sha256(f"{rows} {FACTS}".encode()).hexdigest()


STATEMENTS = f"""
CREATE TABLE points AS
SELECT id, 'class ' || id % 3 AS label,
       ARRAY[id % 3 + id % 7 / 10.0, (id % 3) * (id % 5) / 10.0, id % 11 / 11.0, 1.0]::double precision[] AS features
  FROM generate_series(1, 120) AS id;
SELECT cerebro_pack('points', 'points_packed', 'label', 'features', buffer_size := 20, num_partitions := {PARTITIONS});
SELECT cerebro_load_model('points_models', $$
{{"module": "keras", "class_name": "Sequential", "config": {{"name": "mlp", "layers": [
  {{"module": "keras.layers", "class_name": "InputLayer", "config": {{"batch_shape": [null, 4]}}}},
  {{"module": "keras.layers", "class_name": "Dense", "config": {{"units": 5, "activation": "relu"}}}},
  {{"module": "keras.layers", "class_name": "Dropout", "config": {{"rate": 0.1}}}},
  {{"module": "keras.layers", "class_name": "Dense", "config": {{"units": 3, "activation": "softmax"}}}}]}}}} $$);
SELECT cerebro_load_configs('points_models', 'points_configs', ARRAY[1], ARRAY[
  'loss=''sparse_categorical_crossentropy'',optimizer=''Adam(lr=0.01)'',metrics=[''accuracy'']',
  'loss=''sparse_categorical_crossentropy'',optimizer=''SGD(lr=0.05,momentum=0.9)'',metrics=[''accuracy'']'],
  ARRAY['batch_size=8']);
SELECT cerebro_fit_multiple('points_packed', 'points_out', 'points_configs', {EPOCHS}, seed := 5, num_workers := 1,
                            metrics_compute_frequency := 2);
SELECT cerebro_predict('points_out', 'points', 'id', 'features', 'points_predicted', mst_key := 1);
SELECT cerebro_register_model((SELECT run_id FROM points_out_summary), 1, 'points', 'made by 0.1.0', '{{"from": "0.1.0"}}');
SELECT cerebro_set_alias('points', 'champion', 1);
"""
PAUSED = f"""
SELECT cerebro_fit_multiple('points_packed', 'points_paused', 'points_configs', {EPOCHS}, seed := 5, num_workers := 1,
                            metrics_compute_frequency := 2)
"""


class Connection:
    """A session of its own.

    Args:
        dsn: of the database.
    """

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg2.connect(dsn)
        self._connection.autocommit = True

    def value(self, query: str) -> Any:
        """The first value of the last statement; None where it has none."""
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0] if cursor.description else None

    def close(self) -> None:
        """End it."""
        self._connection.close()


def main(cerebro: str) -> None:
    """Make the file.

    Args:
        cerebro: the program of the released version.
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        home = f"{folder}/home"

        def told(*arguments: str) -> str:
            return subprocess.run(
                [cerebro, *arguments], check=True, capture_output=True, text=True
            ).stdout.strip()

        told("server", "start", "--home", home)
        try:
            dsn = told("server", "dsn", "--home", home)
            told("install", "--dsn", dsn)
            fill(dsn)
            version, text = told("--version"), dumped(dsn, cerebro)
        finally:
            told("server", "destroy", "--yes", "--home", home)
    file = HERE / f"left_by_{version}.sql.gz"
    file.write_bytes(gzip.compress(text.encode(), mtime=0))
    sys.stdout.write(f"{file}: {file.stat().st_size} bytes\n")


def fill(dsn: str) -> None:
    """Train, predict and register; pause a run."""
    with closing(Connection(dsn)) as sql:
        sql.value("SET search_path = public, cerebro")
        for statement in STATEMENTS.split(";\n"):
            if statement.strip():
                sql.value(statement)
        pause(dsn, sql)
        stored = sql.value("SELECT source_print FROM cerebro.catalog_runs WHERE run_id = 1")
        if stored != fingerprint(sql):
            raise SystemExit("FACTS are not what this version keeps of the packed table")


def pause(dsn: str, sql: Connection) -> None:
    """A run that another session pauses in the middle."""
    with closing(Connection(dsn)) as other:
        other.value("SET search_path = public, cerebro")
        call = threading.Thread(target=other.value, args=(PAUSED,))
        call.start()
        while sql.value("SELECT count(*) FROM cerebro.hops WHERE run_id = 2") < 5:
            time.sleep(0.005)
        sql.value("SELECT cerebro_pause(2)")
        call.join()
    hops = sql.value("SELECT count(*) FROM cerebro.hops WHERE run_id = 2")
    status = sql.value("SELECT status FROM cerebro.runs WHERE run_id = 2")
    if status != "paused" or not 5 <= hops < 2 * EPOCHS * PARTITIONS:
        raise SystemExit(f"run 2 is {status} after {hops} hops: try again")


def dumped(dsn: str, cerebro: str) -> str:
    """All of the database as statements, without paths of this machine."""
    text = subprocess.run(["pg_dump", "-d", dsn], check=True, capture_output=True, text=True).stdout
    text = re.sub(r"^\\(un)?restrict .*\n", "", text, flags=re.MULTILINE)
    environment = Path(cerebro).absolute().parents[1]
    command = [
        str(environment / "bin" / "python"),
        "-c",
        "import cerebro_db; print(cerebro_db.__path__[0])",
    ]
    package = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout
    for path in (str(environment), str(Path(package.strip()).parent)):
        text = text.replace(path, "/opt/cerebro-db")
    return text


if __name__ == "__main__":
    main(sys.argv[1])
