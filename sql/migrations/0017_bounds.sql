-- What an owner writes into their rows is shown to others, and read by every look at the catalog: it is bounded,
-- and text holds no control characters but tabs and ends of lines. Names of tables and classes hold what the
-- server lets them hold. Rows that are there already keep what is long and means something, such as parameters; other
-- text of theirs is cleaned first, so that they can change: a check is made at each update. Keys stay as they are.
DO $bounds$
DECLARE
    bounded record;
BEGIN
    FOR bounded IN
        SELECT p.pass, v.name AS relation, quote_ident(a.attname) AS attribute, coalesce(l.most, 1000) AS most,
               coalesce(l.checked, true) AS checked,
               format_type(a.atttypid, NULL) AS type,
               EXISTS (SELECT 1 FROM pg_index i
                        WHERE i.indrelid = c.oid AND i.indisunique AND a.attnum = ANY (i.indkey)) AS is_key,
               CASE format_type(a.atttypid, NULL) WHEN 'text' THEN quote_ident(a.attname)
                    WHEN 'json' THEN quote_ident(a.attname) || '::text'
                    ELSE format('array_to_string(%I, '','', ''NULL'')', a.attname)
               END AS content
          FROM unnest(ARRAY['catalog_runs', 'catalog_configurations', 'catalog_architectures', 'catalog_metrics',
                            'catalog_models', 'catalog_model_versions', 'catalog_model_aliases']) AS v (name)
          JOIN pg_class c ON c.oid = ('cerebro.' || v.name)::regclass
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          LEFT JOIN (VALUES ('description', 10000, true), ('error', 10000, true), ('compile_params', 65536, true),
                            ('fit_params', 65536, true), ('metric_names', 65536, true), ('manifest', 1048576, true),
                            ('tags', 1048576, true), ('lineage', 1048576, false), ('model_arch', 16777216, false),
                            ('model_facts', 67108864, false), ('facts', 67108864, false),
                            ('source_table', 1000, false), ('validation_table', 1000, false),
                            ('model_output_table', 1000, false), ('model_selection_table', 1000, false),
                            ('model_arch_table', 1000, false), ('output_schema', 1000, false),
                            ('output_name', 1000, false)) AS l (name, most, checked) ON l.name = a.attname
         CROSS JOIN (VALUES (1), (2)) AS p (pass)
         WHERE format_type(a.atttypid, NULL) IN ('text', 'json', 'text[]')
         ORDER BY p.pass, v.name, a.attnum
    LOOP
        IF bounded.pass = 1 THEN
            CONTINUE WHEN NOT bounded.checked OR bounded.type = 'text[]' OR bounded.is_key;
            EXECUTE format('UPDATE cerebro.%1$I SET %2$s = left(regexp_replace(%3$s, %4$L, '''', ''g''), %5$s)::%6$s '
                           'WHERE %3$s ~ %4$L OR length(%3$s) > %5$s',
                           bounded.relation, bounded.attribute, bounded.content, '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]',
                           CASE WHEN bounded.type = 'text' AND bounded.most <= 10000 THEN bounded.most ELSE 2147483647 END,
                           bounded.type);
            CONTINUE;
        END IF;
        EXECUTE format('ALTER TABLE cerebro.%I ADD CONSTRAINT %I CHECK (length(%s) <= %s%s) NOT VALID',
                       bounded.relation, 'bounded_' || trim('"' FROM bounded.attribute), bounded.content, bounded.most,
                       CASE WHEN bounded.checked
                            THEN format(' AND %s !~ %L', bounded.content, '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]')
                            ELSE '' END);
    END LOOP;
END
$bounds$;
