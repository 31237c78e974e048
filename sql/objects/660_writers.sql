-- What drivers, clients and workers write of runs, one function for each change. Nobody else writes the tables. See
-- docs/decisions/writing-the-catalog.md.
{%- from 'writer.sql' import writer %}
{%- macro of_run(number='$1', as_administrator='false') %}
    SELECT r.owner INTO owner FROM cerebro.catalog_runs r WHERE r.run_id = {{ number }};
    role := cerebro._check_writer(context, 'run', {{ number }}, owner, {{ as_administrator }});
{%- endmacro %}
{#- Of a run that may be gone by now: nothing is done where the caller has none of that number. #}
{%- macro of_own_run(as_administrator='false', value='') %}
    SELECT r.owner INTO owner FROM cerebro.catalog_runs r WHERE r.run_id = $1;
    IF NOT FOUND OR cerebro._stands(cerebro._writer(context), owner) IS NULL THEN
        RETURN {{ value }};
    END IF;
    role := cerebro._check_writer(context, 'run', $1, owner, {{ as_administrator }});
{%- endmacro %}
{#- Of what has a number of its own: nothing is done where the caller has none of that number. #}
{%- macro of_request(or='') %}
    role := cerebro._writer(context);
    SELECT r.owner{{ ', q.role' if or }} INTO owner{{ ', asker' if or }}
      FROM cerebro.catalog_requests q JOIN cerebro.catalog_runs r ON r.run_id = q.run_id WHERE q.request_id = $1;
    IF NOT FOUND OR cerebro._stands(role, owner) COLLATE "C" IS DISTINCT FROM 'owner'{{ or }} THEN
        RETURN;
    END IF;
{%- endmacro %}
{%- macro of_worker() %}
    role := cerebro._writer(context);
    SELECT r.owner INTO owner FROM cerebro.catalog_direct_workers w JOIN cerebro.catalog_runs r ON r.run_id = w.run_id
     WHERE w.worker_id = $1;
    IF NOT FOUND OR cerebro._stands(role, owner) COLLATE "C" IS DISTINCT FROM 'owner' THEN
        RETURN;
    END IF;
{%- endmacro %}

-- Runs. An administrator says of runs of others that they are stopped, or have no states any more, and drops them.
{%- set columns = ['name', 'description', 'source_table', 'validation_table', 'model_output_table', 'model_selection_table',
    'num_iterations', 'metrics_compute_frequency', 'warm_start', 'seed', 'num_partitions', 'num_workers', 'threads', 'status',
    'use_gpus', 'use_caching', 'durability', 'model_arch_table', 'output_schema', 'output_name', 'source_oid', 'source_print',
    'validation_oid', 'validation_print', 'states', 'lock_key', 'cerebro_version', 'schedule', 'replaces', 'strategy_params', 'rounds'] %}
{%- call writer('_add_run', 'run json, spec jsonb', 'registers a run of the role that calls; returns its number', 'bigint',
                'one     cerebro.catalog_runs;\n    number  bigint;') %}
    role := cerebro._writer(context);
    one := json_populate_record(NULL::cerebro.catalog_runs, $1);
    INSERT INTO cerebro.catalog_runs (owner, driver_pid, manifest, spec, {{ columns | join(', ') }})
    VALUES (role, pg_backend_pid(), '{}', $2, one.{{ columns | join(', one.') }}) RETURNING run_id INTO number;
    RETURN number;
{%- endcall %}
{%- call writer('_driven', 'run_id bigint', 'notes that this session drives a run, and adds up the time of earlier drivers',
                variables='last    timestamptz;\n    began   timestamptz := statement_timestamp();') %}
    {{- of_own_run() }}
    SELECT max(h.finished) INTO last FROM cerebro.catalog_hops h WHERE h.run_id = $1;
    UPDATE cerebro.catalog_runs AS r
       SET status = 'starting', error = NULL, driver_pid = pg_backend_pid(), finished = NULL,
           active = r.active + greatest(0, extract(epoch FROM last - coalesce(r.resumed, r.started))),
           resumed = CASE WHEN r.started IS NULL THEN NULL ELSE began END
     WHERE r.run_id = $1;
{%- endcall %}
{%- call writer('_started', 'run_id bigint, manifest json', 'notes that the workers of a run are ready, and what they report',
                variables='began   timestamptz := statement_timestamp();') %}
    {{- of_own_run() }}
    UPDATE cerebro.catalog_runs AS r SET status = 'running', started = coalesce(r.started, began), manifest = $2 WHERE r.run_id = $1;
    UPDATE cerebro.catalog_configurations AS c SET status = 'training' WHERE c.run_id = $1 AND c.status = 'waiting';
{%- endcall %}
{%- call writer('_run_ended', 'run_id bigint, status text, error text, before text[]',
                'notes why a run has ended; where before is given, only if its status is one of these',
                variables='ended   timestamptz := statement_timestamp();') %}
    {{- of_own_run('$2 COLLATE "C" IN (\'cancelled\', \'paused\', \'interrupted\')') }}
    UPDATE cerebro.catalog_runs AS r SET status = $2, error = $3, finished = ended
     WHERE r.run_id = $1 AND ($4 IS NULL OR r.status COLLATE "C" = ANY ($4));
{%- endcall %}
{%- call writer('_run_queued', 'run_id bigint', 'notes that a run that stopped waits for another driver') %}
    {{- of_own_run() }}
    UPDATE cerebro.catalog_runs AS r SET status = 'queued', error = NULL, finished = NULL WHERE r.run_id = $1;
{%- endcall %}
{%- call writer('_output_renamed', 'run_id bigint, output text, output_schema text, output_name text',
                'notes under which name a run leaves its output') %}
    {{- of_own_run() }}
    UPDATE cerebro.catalog_runs AS r SET model_output_table = $2, output_schema = $3, output_name = $4 WHERE r.run_id = $1;
{%- endcall %}
{%- call writer('_states_dropped', 'run_id bigint', 'notes that the states of a run are gone') %}
    {{- of_own_run('true') }}
    UPDATE cerebro.catalog_runs AS r SET states = NULL WHERE r.run_id = $1;
{%- endcall %}
{%- call writer('_revived', 'run_id bigint, states text', 'notes from which states a finished run goes on') %}
    {{- of_own_run() }}
    UPDATE cerebro.catalog_runs AS r SET states = $2, status = 'paused', error = NULL, replaces = true
     WHERE r.run_id = $1 AND r.status = 'finished';
{%- endcall %}
{%- call writer('_drop_run', 'run_id bigint', 'removes all that the catalog has of a run') %}
    {{- of_own_run('true') }}
{%- for table in ['direct_answers', 'direct_orders', 'direct_workers', 'requests', 'metrics', 'updates', 'hops', 'decisions', 'plan',
                  'architectures', 'configurations', 'runs'] %}
    DELETE FROM cerebro.catalog_{{ table }} t WHERE t.run_id = $1;
{%- endfor %}
{%- endcall %}

-- Rows that a driver adds to its run, as JSON of these columns.
{%- set added = [
    ('configurations', 'budget, mst_key, model_id, compile_params, fit_params, hop_seconds, initial_seed, jit, steps_per_call, goal, is_warm, status'),
    ('plan', 'epoch, mst_key, position, partition_key, group_size, reason'),
    ('hops', 'mst_key, epoch, position, partition_key, worker, pid, started, finished, waited, read, trained, written, rows, loss, compiled, cached, memory_mb'),
    ('updates', 'mst_key, epoch, round, groups, momentum, learning_rate, probes, counts, staleness, stalest, updates'),
    ('metrics', 'mst_key, epoch, dataset, loss, metric_names, metrics, elapsed'),
    ('decisions', 'number, mst_key, action, epochs, source, source_epoch, reason, who, detail, heard'),
] %}
{%- for table, names in added %}
{%- call writer('_add_' ~ table, 'run_id bigint, added json', 'adds rows of ' ~ table ~ ' to a run') %}
    {{- of_run() }}
    INSERT INTO cerebro.catalog_{{ table }} (run_id, {{ names }})
    SELECT $1, a.{{ names | replace(', ', ', a.') }} FROM json_populate_recordset(NULL::cerebro.catalog_{{ table }}, $2) a;
{%- endcall %}
{%- endfor %}
{%- call writer('_copy_updates', 'run_id bigint, source bigint', 'gives a run the orders of updates of another one') %}
    {{- of_run('$2', 'true') }}
    {{- of_run() }}
    INSERT INTO cerebro.catalog_updates (run_id, {{ added[3][1] }})
    SELECT $1, a.{{ added[3][1] | replace(', ', ', a.') }} FROM cerebro.catalog_updates a WHERE a.run_id = $2;
{%- endcall %}
{%- call writer('_add_architecture', 'run_id bigint, model_id integer, model_arch text, model_facts text, model_weights bytea',
                'adds a model to a run') %}
    {{- of_run() }}
    INSERT INTO cerebro.catalog_architectures (run_id, model_id, model_arch, model_facts, model_weights) VALUES ($1, $2, $3, $4, $5);
{%- endcall %}
{%- call writer('_forget_metrics', 'run_id bigint, mst_key integer, epoch integer', 'removes results that are measured once more') %}
    {{- of_own_run() }}
    DELETE FROM cerebro.catalog_metrics m WHERE m.run_id = $1 AND m.mst_key = $2 AND m.epoch = $3;
{%- endcall %}
{%- call writer('_forget_hops', 'run_id bigint, mst_keys integer[], hops_an_epoch bigint, done bigint, kept bigint[]',
                'removes the hops of configurations from a number on, but for some of them') %}
    {{- of_own_run() }}
    DELETE FROM cerebro.catalog_hops h WHERE h.run_id = $1 AND h.mst_key = ANY ($2) AND (h.epoch - 1) * $3 + h.position >= $4
       AND (h.epoch - 1) * $3 + h.position <> ALL ($5);
{%- endcall %}

-- Configurations.
{%- call writer('_configurations_ended', 'run_id bigint, mst_keys integer[], status text, error text, keeps_error boolean',
                'notes why configurations have ended') %}
    {{- of_own_run() }}
    UPDATE cerebro.catalog_configurations AS c SET status = $3, error = CASE WHEN $5 THEN c.error ELSE $4 END
     WHERE c.run_id = $1 AND c.mst_key = ANY ($2);
{%- endcall %}
{%- call writer('_set_ends', 'run_id bigint, mst_keys integer[], stopped_epoch integer, best_epoch integer, model_epoch integer, status text',
                'notes after which epochs configurations end; those that were stopped early have a status then') %}
    {{- of_own_run() }}
    UPDATE cerebro.catalog_configurations AS c
       SET stopped_epoch = $3, best_epoch = $4, model_epoch = $5, status = CASE WHEN $3 IS NULL THEN c.status ELSE $6 END,
           error = CASE WHEN $3 IS NULL THEN c.error END
     WHERE c.run_id = $1 AND c.mst_key = ANY ($2);
{%- endcall %}
{%- call writer('_promote', 'run_id bigint, mst_key integer, budget integer', 'gives a configuration more epochs') %}
    {{- of_own_run() }}
    UPDATE cerebro.catalog_configurations AS c SET budget = $3, status = 'training', stopped_epoch = NULL, model_epoch = NULL
     WHERE c.run_id = $1 AND c.mst_key = $2;
{%- endcall %}

-- Requests. Administrators have the driver of somebody else stop.
{%- call writer('_add_request', 'run_id bigint, action text, mst_key integer, detail jsonb',
                'asks something of the driver of a run; returns the number of the request', 'bigint', 'number  bigint;') %}
    {{- of_run('$1', '$2 COLLATE "C" IN (\'cancel\', \'pause\', \'stop\')') }}
    INSERT INTO cerebro.catalog_requests (run_id, action, mst_key, detail, role) VALUES ($1, $2, $3, $4, role)
    RETURNING request_id INTO number;
    RETURN number;
{%- endcall %}
{%- call writer('_answer', 'request_id bigint, answer jsonb', 'answers a request') %}
    {{- of_request() }}
    UPDATE cerebro.catalog_requests AS q SET answer = $2 WHERE q.request_id = $1;
{%- endcall %}
{%- call writer('_forget_request', 'request_id bigint', 'removes a request whose answer was read', variables='asker   oid;') %}
    {{- of_request(' AND role IS DISTINCT FROM asker') }}
    DELETE FROM cerebro.catalog_requests q WHERE q.request_id = $1;
{%- endcall %}
{%- call writer('_forget_requests', 'run_id bigint, up_to bigint',
                'removes requests without an answer up to a number, but for what the next driver begins with') %}
    {{- of_own_run() }}
    DELETE FROM cerebro.catalog_requests q WHERE q.run_id = $1 AND q.request_id <= $2 AND q.answer IS NULL AND q.action <> 'extend';
{%- endcall %}
{%- call writer('_forget_extensions', 'run_id bigint', 'removes requests to extend a search') %}
    {{- of_own_run() }}
    DELETE FROM cerebro.catalog_requests q WHERE q.run_id = $1 AND q.action = 'extend';
{%- endcall %}

-- Direct workers, for those alone who have the rights of the owner of the run.
{%- call writer('_join_run', 'run_id bigint, lock_key bigint, host text',
                'announces a direct worker, which this session is; returns its number', 'bigint', 'number  bigint;') %}
    {{- of_run() }}
    INSERT INTO cerebro.catalog_direct_workers (run_id, lock_key, host) VALUES ($1, $2, $3) RETURNING worker_id INTO number;
    RETURN number;
{%- endcall %}
{%- call writer('_admit_worker', 'worker_id bigint, number integer, told json', 'lets a direct worker work') %}
    {{- of_worker() }}
    UPDATE cerebro.catalog_direct_workers AS w SET number = $2, told = $3, facts = NULL WHERE w.worker_id = $1;
{%- endcall %}
{%- call writer('_worker_is_ready', 'worker_id bigint, facts json', 'notes that the trainer of a direct worker is ready') %}
    {{- of_worker() }}
    UPDATE cerebro.catalog_direct_workers AS w SET facts = $2 WHERE w.worker_id = $1;
{%- endcall %}
{%- call writer('_worker_departed', 'worker_id bigint, reason text', 'notes why a direct worker has left', variables='ended   timestamptz := now();') %}
    {{- of_worker() }}
    UPDATE cerebro.catalog_direct_workers AS w SET departed = ended, reason = $2 WHERE w.worker_id = $1 AND w.departed IS NULL;
{%- endcall %}
{%- call writer('_give_order', 'run_id bigint, worker_id bigint, hop text, fence bigint',
                'gives a direct worker an order; returns the number of it', 'bigint', 'number  bigint;') %}
    {{- of_run() }}
    PERFORM 1 FROM cerebro.catalog_direct_workers w WHERE w.worker_id = $2 AND w.run_id = $1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '44000',
            MESSAGE = format('worker_id: got %s; allowed: a direct worker of run %s', coalesce($2::text, 'NULL'), $1);
    END IF;
    INSERT INTO cerebro.catalog_direct_orders (run_id, worker_id, hop, fence) VALUES ($1, $2, $3, $4) RETURNING order_id INTO number;
    RETURN number;
{%- endcall %}
{%- call writer('_forget_orders', 'run_id bigint, order_ids bigint[]', 'removes orders, and their answers') %}
    {{- of_own_run() }}
    DELETE FROM cerebro.catalog_direct_orders o WHERE o.run_id = $1 AND o.order_id = ANY ($2);
    DELETE FROM cerebro.catalog_direct_answers a WHERE a.run_id = $1 AND a.order_id = ANY ($2);
{%- endcall %}
{%- call writer('_revoke_orders', 'run_id bigint', 'removes all orders of a run, whose direct workers wait for another driver then') %}
    {{- of_own_run() }}
    DELETE FROM cerebro.catalog_direct_orders o WHERE o.run_id = $1;
    DELETE FROM cerebro.catalog_direct_answers a WHERE a.run_id = $1;
    UPDATE cerebro.catalog_direct_workers AS w SET number = NULL, facts = NULL WHERE w.run_id = $1 AND w.departed IS NULL;
{%- endcall %}

-- The fence: an order is answered, or taken back, under its lock, which is given back when either can be seen. What
-- is looked for afterwards is a statement of its own, which sees what was committed before.
{%- call writer('_answer_order', 'run_id bigint, order_id bigint, fence bigint, answer text',
                'answers an order, and keeps others from taking it back until the transaction ends; an error where it was taken back') %}
    {{- of_run() }}
    PERFORM pg_advisory_xact_lock($3);
    PERFORM 1 FROM cerebro.catalog_direct_orders o WHERE o.run_id = $1 AND o.order_id = $2 AND o.fence = $3;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'YC007', MESSAGE = format('order: got %s, which was taken back', $2);
    END IF;
    INSERT INTO cerebro.catalog_direct_answers (run_id, order_id, answer) VALUES ($1, $2, $4);
{%- endcall %}
{%- call writer('_take_order_back', 'run_id bigint, order_id bigint, fence bigint',
                'takes an order back, so that nothing can answer it; false where it has an answer. Waits for a transaction that answers it',
                'boolean') %}
    {{- of_own_run(value='true') }}
    PERFORM pg_advisory_xact_lock($3);
    PERFORM 1 FROM cerebro.catalog_direct_answers a WHERE a.run_id = $1 AND a.order_id = $2;
    IF FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM cerebro.catalog_direct_orders o WHERE o.run_id = $1 AND o.order_id = $2;
    RETURN true;
{%- endcall %}
