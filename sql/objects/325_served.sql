-- Rounds whose weights one trainer holds: what is recorded of them.

CREATE OR REPLACE FUNCTION cerebro._served_round(
    token bigint, OUT groups integer, OUT momentum double precision, OUT learning_rate double precision,
    OUT probes text, OUT counts integer[], OUT staleness double precision[], OUT stalest integer[], OUT updates bytea)
RETURNS record LANGUAGE plpython3u AS {{ plpython('return relay.trainer("training.served_round", token)') }};
COMMENT ON FUNCTION cerebro._served_round(bigint) IS
'Internal: course of the round whose weights the hop of this worker has held: its groups, and its updates in their order.';
