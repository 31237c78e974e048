"""Classes are equal as their type and collation say: surveyed, packed, validated and predicted alike."""

from __future__ import annotations

import psycopg2
import pytest

WRITTEN = "(ARRAY['Oslo', 'OSLO', 'rome', 'Rome', 'rome'])[1 + k % 5]"


@pytest.fixture(scope="module")
def places(db):
    """Places that are written in several ways, in columns of several types."""
    db.fetch(
        "CREATE EXTENSION IF NOT EXISTS citext SCHEMA public; "
        "CREATE DOMAIN town AS citext; "
        "CREATE TABLE places AS SELECT k AS id, ARRAY[k]::real[] AS x, "
        f"{WRITTEN}::citext AS citext, {WRITTEN}::town AS domain, {WRITTEN} AS plain, "
        "(ARRAY['1 day', '24:00:00', '2 days', '48:00:00', '2 days'])[1 + k % 5]::interval AS span "
        "FROM generate_series(1, 50) k"
    )
    return db


TRUTH = [int(k % 5 > 1) for k in range(1, 51)]


def classes(db, output):
    got = db.unpack(output, "x", db.value(f"SELECT dependent_varname[1] FROM {output}_summary"))
    order = got.features[:, 0].argsort()
    return [int(value) for value in got.targets[order]]


@pytest.mark.parametrize(
    ("column", "values"),
    [("citext", "{OSLO,Rome}"), ("domain", "{OSLO,Rome}"), ("span", '{"1 day","2 days"}')],
)
def test_a_class_is_what_its_type_says(places, column, values):
    output = f"of_{column}"
    places.pack("places", output, column, "x", num_partitions=2)
    assert places.value(f"SELECT {column}_class_values::text FROM {output}_summary") == values
    assert classes(places, output) == TRUTH
    places.fetch(
        f"SELECT cerebro_pack_validation('places', 'again', '{column}', 'x', '{output}', replace := true)"
    )
    assert classes(places, "again") == TRUTH


@pytest.mark.not_on_segments("Greenplum 6 has no such collations")
def test_a_class_is_what_its_collation_says(places):
    if places.connection.server_version < 120000:
        pytest.skip("this server has no collations that are not deterministic")
    places.fetch(
        "CREATE COLLATION nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false); "
        "CREATE TABLE collated AS SELECT x, plain COLLATE nd AS y FROM places"
    )
    places.pack("collated", "of_nd", "y", "x", num_partitions=2)
    assert places.value("SELECT y_class_values::text FROM of_nd_summary") == "{OSLO,Rome}"
    assert classes(places, "of_nd") == TRUTH
    places.fetch(
        "SELECT cerebro_pack_validation('collated', 'again', 'y', 'x', 'of_nd', replace := true)"
    )
    assert classes(places, "again") == TRUTH


def test_one_of_several_outputs(places):
    places.pack("places", "several", "plain, citext, span", "x", num_partitions=2)
    assert places.value("SELECT num_classes FROM several_summary") == [4, 2, 2]
    got = places.unpack("several", "x", "citext")
    assert [int(one) for one in got.targets[got.features[:, 0].argsort()]] == TRUTH


def test_the_type_of_the_training_column_counts(places):
    places.pack("places", "trained", "citext", "x", replace=True)
    places.fetch("CREATE VIEW texts AS SELECT x, plain AS citext FROM places")
    places.fetch(
        "SELECT cerebro_pack_validation('texts', 'again', 'citext', 'x', 'trained', replace := true)"
    )
    assert classes(places, "again") == TRUTH
    places.pack("places", "exact", "plain", "x", replace=True)
    places.fetch("CREATE VIEW loose AS SELECT x, citext AS plain FROM places")
    places.fetch(
        "SELECT cerebro_pack_validation('loose', 'again', 'plain', 'x', 'exact', replace := true)"
    )
    assert places.value("SELECT num_rows FROM again_summary") == 50
    assert sorted(set(classes(places, "again"))) == [0, 1, 2, 3]


def test_other_classes_are_still_refused(places):
    places.pack("places", "trained", "citext", "x", replace=True)
    places.fetch("CREATE VIEW more AS SELECT x, (citext || 'a')::citext AS citext FROM places")
    with pytest.raises(psycopg2.DataError, match=r"holds the class '\w+a'; allowed: {OSLO,Rome}"):
        places.fetch("SELECT cerebro_pack_validation('more', 'refused', 'citext', 'x', 'trained')")
