"""Loads scikit-learn's digits into the embedded server and runs demo/digits.sql, shown as it goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sklearn.datasets import load_digits

from cerebro_db.install.embedded import Cluster, default_home

EVERY = 6
SCRIPT = Path(__file__).with_name("digits.sql")

PREPARE = """
SET client_min_messages = warning;
DROP VIEW IF EXISTS digits_train, digits_test;
DROP TABLE IF EXISTS digits, digits_packed, digits_packed_summary, digits_val, digits_val_summary,
    digits_models, digits_configs, digits_configs_summary,
    digits_out, digits_out_info, digits_out_summary, digits_predicted;
CREATE TABLE digits (id integer PRIMARY KEY, split text, image real[], label integer);
COPY digits FROM STDIN;
"""


def main() -> int:
    """Returns psql's exit code."""
    cluster = Cluster(default_home())
    psql = [cluster.psql(), "-X", "-v", "ON_ERROR_STOP=1", cluster.dsn()]
    subprocess.run([*psql, "-q"], input=PREPARE + rows_of_digits(), text=True, check=True)
    return subprocess.run([*psql, "-e", "-f", str(SCRIPT)], check=False).returncode


def rows_of_digits() -> str:
    """The images in COPY's text format, each of shape 8 x 8 x 1."""
    digits = load_digits()
    lines = []
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        split = "validation" if number % EVERY == EVERY - 1 else "training"
        rows = ",".join("{" + ",".join(f"{{{pixel:g}}}" for pixel in row) + "}" for row in image)
        lines.append(f"{number}\t{split}\t{{{rows}}}\t{label}\n")
    return "".join(lines) + "\\.\n"


if __name__ == "__main__":
    sys.exit(main())
