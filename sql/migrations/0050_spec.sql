-- What a run was asked for, as one JSON with a version (cerebro_db/core/run_spec.py), whichever version began it. What only
-- drivers read of it has no columns any more; views, which stand on the rest, are made anew.

DROP VIEW IF EXISTS cerebro._runs CASCADE;
ALTER TABLE cerebro.catalog_runs ADD COLUMN spec jsonb NOT NULL DEFAULT '{}';
{%- set given %}
    'version', 1, 'epochs', num_iterations, 'seed', seed, 'frequency', metrics_compute_frequency, 'partitions', json '{}',
    'strategy', json_build_object('name', schedule, 'params', strategy_params), 'durability', coalesce(durability, 'hop'),
    'use_gpus', coalesce(use_gpus, false), 'workers', json_build_object('count', num_workers), 'threads', threads,
    'use_caching', coalesce(use_caching, true), 'warm_start', warm_start, 'name', name, 'description', description,
    'source_table', source_table, 'validation_table', validation_table, 'model_selection_table', model_selection_table,
    'model_arch_table', coalesce(model_arch_table, ''), 'object_table', object_table, 'session', session::json,
    'cerebro_version', coalesce(cerebro_version, '')
{%- endset %}
UPDATE cerebro.catalog_runs SET spec = CASE
    WHEN search IS NULL THEN json_build_object({{ given }})
    ELSE json_build_object({{ given }}, 'search', search) END::text::jsonb;
ALTER TABLE cerebro.catalog_runs ADD CONSTRAINT bounded_spec CHECK (length(spec::text) <= 67108864);
ALTER TABLE cerebro.catalog_runs DROP COLUMN search, DROP COLUMN session, DROP COLUMN object_table;
