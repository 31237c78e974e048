-- Hops that are made together: the one that leads leaves the state, and the figures of all of them.

CREATE OR REPLACE FUNCTION cerebro._group_hops(
    token bigint, OUT place integer, OUT rows bigint, OUT loss double precision,
    OUT read_seconds double precision, OUT train_seconds double precision, OUT compiled boolean,
    OUT cached boolean, OUT memory_mb integer)
RETURNS SETOF record LANGUAGE plpython3u AS {{ plpython('return relay.trainer("training.group_hops", token)') }};
COMMENT ON FUNCTION cerebro._group_hops(bigint) IS
'Internal: what each of the hops did that a hop of this worker has led, by their places.';
