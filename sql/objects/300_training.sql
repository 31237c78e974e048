-- What workers run: one hop, one scoring pass, and how they get ready.

CREATE OR REPLACE FUNCTION cerebro._prepare_worker(threads integer, use_gpus boolean, cache_bytes bigint, run_id bigint, place integer DEFAULT NULL, frameworks text DEFAULT NULL)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.trainer("training.prepare", threads, use_gpus, cache_bytes, run_id, place, frameworks, like=[threads, use_gpus])') }};
COMMENT ON FUNCTION cerebro._prepare_worker(integer, boolean, bigint, bigint, integer, text) IS
'Internal: gives this session a trainer with some frameworks, and sets the bound of its cache of decoded partitions; returns what belongs in the manifest of a run.';

CREATE OR REPLACE FUNCTION cerebro._prepare_process(task text)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.trainer("training.prepare_process", task, like=relay.like(-1, task))') }};
COMMENT ON FUNCTION cerebro._prepare_process(text) IS
'Internal: does the same in a process of a segment, which cannot look into the settings; they are in the task.';

CREATE OR REPLACE FUNCTION cerebro._know_functions(functions text)
RETURNS void LANGUAGE plpython3u AS {{ plpython('relay.know(functions)') }};
COMMENT ON FUNCTION cerebro._know_functions(text) IS
'Internal: tells a process what registered functions there are. Only the owner of the catalog may call it.';

CREATE OR REPLACE FUNCTION cerebro._know_network(settings text)
RETURNS void LANGUAGE plpython3u AS {{ plpython('relay.know_network(settings)') }};
COMMENT ON FUNCTION cerebro._know_network(text) IS
'Internal: tells a process what network trainers have. Only the owner of the catalog may call it.';

CREATE OR REPLACE FUNCTION cerebro._try_peers(task text)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.trainer("training.try_peers", task)') }};
COMMENT ON FUNCTION cerebro._try_peers(text) IS
'Internal: has a trainer go to those of other hosts, which look for it at the same time; returns JSON of why it could not.';

-- The one way to both: what they get is read from the catalog, on a segment from the copy that lies there.
CREATE OR REPLACE FUNCTION cerebro._with_functions(task text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (task::json ->> 'functions')::boolean THEN
        PERFORM cerebro._know_functions((
            SELECT json_object_agg(f.name, ARRAY[f.path, f.package, f.version, f.expression])::text
              FROM cerebro.catalog_functions f));
    END IF;
    IF (task::json ->> 'peers')::boolean OR (task::json -> 'settings') IS NOT NULL THEN
        PERFORM cerebro._know_network((
            SELECT json_object_agg(s.name, s.value)::text
              FROM cerebro.catalog_settings s WHERE s.name IN ('trainer_network', 'peer_network', 'peer_ports')));
    END IF;
    RETURN task;
END
$$;
ALTER FUNCTION cerebro._with_functions(text) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._with_functions(text) IS
'Internal: a task of a worker, as it is; before one that says so the process hears of the registered functions, and of the network that trainers have.';

CREATE OR REPLACE FUNCTION cerebro._write_events(task text)
RETURNS void LANGUAGE plpython3u AS {{ plpython('return relay.trainer("events.write_events", task)') }};
COMMENT ON FUNCTION cerebro._write_events(text) IS
'Internal: writes event files for TensorBoard below the directory that an administrator has named.';

CREATE OR REPLACE FUNCTION cerebro._inspect_model(model_arch text, weights bigint)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.trainer("models.inspect", model_arch, weights)') }};
COMMENT ON FUNCTION cerebro._inspect_model(text, bigint) IS
'Internal: builds a model from its JSON, gives it the weights that were joined under a token, and returns its size, work and shapes.';

CREATE OR REPLACE FUNCTION cerebro._train_step(
    token bigint, kind integer, task text, state bytea, weights bytea,
    subepoch integer, buffer_id integer, x bytea, x_shape integer[], y bytea, y_shape integer[])
RETURNS bigint LANGUAGE plpython3u AS {{ udf('_train_step') }};
COMMENT ON FUNCTION cerebro._train_step(bigint, integer, text, bytea, bytea, integer, integer, bytea, integer[], bytea, integer[]) IS
'Internal: transition function of cerebro_train; the first row brings the task, the next ones the chunks of the state, the others a buffer each.';

CREATE OR REPLACE FUNCTION cerebro._train_final(token bigint)
RETURNS bigint LANGUAGE plpython3u AS {{ plpython('return relay.trainer("training.train_final", token)') }};
COMMENT ON FUNCTION cerebro._train_final(bigint) IS
'Internal: final function of cerebro_train; returns the token by which cerebro._saved_state finds the next state.';

DROP AGGREGATE IF EXISTS cerebro.cerebro_train(integer, text, bytea, bytea, integer, integer, bytea, integer[], bytea, integer[]);
CREATE AGGREGATE cerebro.cerebro_train(integer, text, bytea, bytea, integer, integer, bytea, integer[], bytea, integer[]) (
    SFUNC = cerebro._train_step, STYPE = bigint, FINALFUNC = cerebro._train_final
);
COMMENT ON AGGREGATE cerebro.cerebro_train(integer, text, bytea, bytea, integer, integer, bytea, integer[], bytea, integer[]) IS
'Trains one configuration over the buffers of one partition: a hop. The driver of a run calls it.';

CREATE OR REPLACE FUNCTION cerebro._saved_state(token bigint, OUT chunk integer, OUT state bytea, OUT report text)
RETURNS SETOF record LANGUAGE plpython3u AS {{ plpython('return relay.trainer("training.saved_state", token)') }};
COMMENT ON FUNCTION cerebro._saved_state(bigint) IS
'Internal: the state that a hop of this worker left, in chunks; the first one has the report of what the hop did, as JSON.';

CREATE OR REPLACE FUNCTION cerebro._measure_step(
    token bigint, kind integer, task text, state bytea,
    buffer_id integer, x bytea, x_shape integer[], y bytea, y_shape integer[])
RETURNS bigint LANGUAGE plpython3u AS {{ udf('_measure_step') }};
COMMENT ON FUNCTION cerebro._measure_step(bigint, integer, text, bytea, integer, bytea, integer[], bytea, integer[]) IS
'Internal: transition function of cerebro_measure; first the task, then the states, then the buffers.';

CREATE OR REPLACE FUNCTION cerebro._measure_final(token bigint)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.trainer("scoring.measure_final", token)') }};
COMMENT ON FUNCTION cerebro._measure_final(bigint) IS
'Internal: final function of cerebro_measure; returns the sums of loss and metrics of each configuration as JSON.';

DROP AGGREGATE IF EXISTS cerebro.cerebro_measure(integer, text, bytea, integer, bytea, integer[], bytea, integer[]);
CREATE AGGREGATE cerebro.cerebro_measure(integer, text, bytea, integer, bytea, integer[], bytea, integer[]) (
    SFUNC = cerebro._measure_step, STYPE = bigint, FINALFUNC = cerebro._measure_final
);
COMMENT ON AGGREGATE cerebro.cerebro_measure(integer, text, bytea, integer, bytea, integer[], bytea, integer[]) IS
'Loss and metrics of many configurations in one scan of a partition. The driver of a run calls it.';

CREATE OR REPLACE FUNCTION cerebro._try_scores(task text)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.trainer("scoring.try_scores", task)') }};
COMMENT ON FUNCTION cerebro._try_scores(text) IS
'Internal: scores a row of zeros with each configuration and returns the errors as JSON, so that a loss or metric that cannot be computed is found before training.';

CREATE OR REPLACE FUNCTION cerebro._combine_measures(task text)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.trainer("scoring.combine", task)') }};
COMMENT ON FUNCTION cerebro._combine_measures(text) IS
'Internal: adds the sums of all partitions and returns the loss and metrics of each configuration as JSON.';

CREATE OR REPLACE FUNCTION cerebro._join_state(token bigint, state bytea)
RETURNS bigint LANGUAGE plpython3u AS {{ plpython('return relay.step("training.join_state", token, token is None, state)') }};
COMMENT ON FUNCTION cerebro._join_state(bigint, bytea) IS
'Internal: transition function of cerebro_joined_state.';

DROP AGGREGATE IF EXISTS cerebro.cerebro_joined_state(bytea);
CREATE AGGREGATE cerebro.cerebro_joined_state(bytea) (
    SFUNC = cerebro._join_state, STYPE = bigint
);
COMMENT ON AGGREGATE cerebro.cerebro_joined_state(bytea) IS
'Joins the chunks of one state in the memory of this session; returns the token by which other functions find it.';

CREATE OR REPLACE FUNCTION cerebro._joined_bytes(token bigint, size bigint)
RETURNS bytea LANGUAGE plpython3u AS {{ plpython('return relay.trainer("joined.joined_bytes", token, size)') }};
COMMENT ON FUNCTION cerebro._joined_bytes(bigint, bigint) IS
'Internal: the bytes that were joined in this session under a token, as a value, if they are so many.';

CREATE OR REPLACE FUNCTION cerebro._state_weights(token bigint)
RETURNS bytea LANGUAGE plpython3u AS {{ plpython('return relay.trainer("training.state_weights", token)') }};
COMMENT ON FUNCTION cerebro._state_weights(bigint) IS
'Internal: the weights of a joined state as float32, in the order of Keras'' get_weights(); NULL where they exceed what a value can hold.';
