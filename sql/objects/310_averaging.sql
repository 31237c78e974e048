-- The states that the hops of a round leave, each of a replica on another partition, become one.

CREATE OR REPLACE FUNCTION cerebro._average_step(
    token bigint, weights double precision[], place integer, state bytea)
RETURNS bigint LANGUAGE plpython3u AS {{ plpython('return relay.step("averaging.average_step", token, token is None, weights, place, state)') }};
COMMENT ON FUNCTION cerebro._average_step(bigint, double precision[], integer, bytea) IS
'Internal: transition function of cerebro_average; takes a chunk of a state.';

CREATE OR REPLACE FUNCTION cerebro._average_final(token bigint)
RETURNS bigint LANGUAGE plpython3u AS {{ plpython('return relay.trainer("averaging.average_final", token)') }};
COMMENT ON FUNCTION cerebro._average_final(bigint) IS
'Internal: final function of cerebro_average; returns the token by which cerebro._saved_state finds the mean.';

DROP AGGREGATE IF EXISTS cerebro.cerebro_average(double precision[], integer, bytea);
CREATE AGGREGATE cerebro.cerebro_average(double precision[], integer, bytea) (
    SFUNC = cerebro._average_step, STYPE = bigint, FINALFUNC = cerebro._average_final
);
COMMENT ON AGGREGATE cerebro.cerebro_average(double precision[], integer, bytea) IS
'Mean of the states of a round, weighted by the rows that each was trained on. The driver of a run calls it.';
