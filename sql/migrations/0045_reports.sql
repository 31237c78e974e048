-- What a hop did is JSON in the first row of its state, on all servers. What it was before goes; a table of states that
-- still has a column of the type keeps that.
DROP AGGREGATE IF EXISTS cerebro.cerebro_train(integer, text, bytea, bytea, integer, integer, bytea, integer[], bytea, integer[]);
DROP FUNCTION IF EXISTS cerebro._train_final(bigint);
DROP FUNCTION IF EXISTS cerebro._saved_state(bigint);
DROP FUNCTION IF EXISTS cerebro._group_hops(bigint);
DROP FUNCTION IF EXISTS cerebro._served_round(bigint);
DO $type$
BEGIN
    DROP TYPE cerebro.visit_result;
EXCEPTION WHEN dependent_objects_still_exist THEN
    NULL;
END
$type$;
-- Rows that are read say of which table they are.
DROP FUNCTION IF EXISTS cerebro._check_table(text, oid);
