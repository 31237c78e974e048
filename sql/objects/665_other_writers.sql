-- What is written of registered models, drift and settings, one function for each change. See 660_writers.sql.
{%- from 'writer.sql' import writer %}
{%- macro of_model(as_administrator='false') %}
    SELECT m.owner INTO owner FROM cerebro.catalog_models m WHERE m.model_id = $1;
    role := cerebro._check_writer(context, 'model', $1, owner, {{ as_administrator }});
{%- endmacro %}

-- Models. An administrator removes those of others.
{%- call writer('_add_model', 'name text', 'makes a model of the role that calls; returns its number', 'bigint', 'number  bigint;') %}
    role := cerebro._writer(context);
    INSERT INTO cerebro.catalog_models (owner, name) VALUES (role, $1) RETURNING model_id INTO number;
    RETURN number;
{%- endcall %}
{%- call writer('_add_version', 'model_id bigint, description text, tags json, run_id bigint, mst_key integer, model_arch text, '
                ~ 'compile_params text, fit_params text, facts json, lineage json',
                'adds a version to a model, whose number was never used before; returns that', 'integer', 'number  integer;') %}
    {{- of_model() }}
    -- Who adds another version waits for this.
    UPDATE cerebro.catalog_models AS m SET versions = m.versions + 1 WHERE m.model_id = $1;
    SELECT m.versions INTO number FROM cerebro.catalog_models m WHERE m.model_id = $1;
    INSERT INTO cerebro.catalog_model_versions (model_id, version, description, tags, run_id, mst_key, model_arch, compile_params,
                                                fit_params, facts, lineage, registered_by)
    VALUES ($1, number, $2, coalesce($3, '{}'), $4, $5, $6, $7, $8, $9, $10, role);
    RETURN number;
{%- endcall %}
{%- call writer('_add_model_state', 'model_id bigint, version integer, chunk integer, state bytea', 'adds a part of the state of a version') %}
    {{- of_model() }}
    INSERT INTO cerebro.catalog_model_states (model_id, version, chunk, state) VALUES ($1, $2, $3, $4);
{%- endcall %}
{%- call writer('_describe_model', 'model_id bigint, version integer, description text, tags json',
                'sets description and tags of a model, or of a version; NULL leaves what is there') %}
    {{- of_model() }}
    IF $2 IS NULL THEN
        UPDATE cerebro.catalog_models AS m SET description = coalesce($3, m.description), tags = coalesce($4, m.tags)
         WHERE m.model_id = $1;
    ELSE
        UPDATE cerebro.catalog_model_versions AS v SET description = coalesce($3, v.description), tags = coalesce($4, v.tags)
         WHERE v.model_id = $1 AND v.version = $2;
    END IF;
{%- endcall %}
{%- call writer('_report_version', 'model_id bigint, version integer, report json', 'keeps what the report of a version has') %}
    {{- of_model() }}
    UPDATE cerebro.catalog_model_versions AS v SET report = $3 WHERE v.model_id = $1 AND v.version = $2;
{%- endcall %}
{%- call writer('_change_alias', 'model_id bigint, alias text, version integer, previous bigint', 'records a change of an alias') %}
    {{- of_model() }}
    INSERT INTO cerebro.catalog_model_aliases (model_id, alias, version, previous, changed_by) VALUES ($1, $2, $3, $4, role);
{%- endcall %}
{%- call writer('_grant_model', 'model_id bigint, grantee oid', 'lets a role use a model') %}
    {{- of_model() }}
    PERFORM 1 FROM cerebro.catalog_model_grants g WHERE g.model_id = $1 AND g.grantee = $2;
    IF NOT FOUND THEN
        INSERT INTO cerebro.catalog_model_grants (model_id, grantee, granted_by) VALUES ($1, $2, role);
    END IF;
{%- endcall %}
{%- call writer('_revoke_model', 'model_id bigint, grantee oid', 'takes back what _grant_model gives; false where it was not given', 'boolean') %}
    {{- of_model() }}
    PERFORM 1 FROM cerebro.catalog_model_grants g WHERE g.model_id = $1 AND g.grantee = $2;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM cerebro.catalog_model_grants g WHERE g.model_id = $1 AND g.grantee = $2;
    RETURN true;
{%- endcall %}
{%- call writer('_lock_model', 'model_id bigint', 'lets nobody else change a model until the transaction ends') %}
    {{- of_model('true') }}
    UPDATE cerebro.catalog_models AS m SET versions = m.versions WHERE m.model_id = $1;
{%- endcall %}
{%- call writer('_drop_model', 'model_id bigint, version integer', 'removes a version, or a model with all versions') %}
    {{- of_model('true') }}
    DELETE FROM cerebro.catalog_model_states s WHERE s.model_id = $1 AND s.version = coalesce($2, s.version);
    DELETE FROM cerebro.catalog_model_versions v WHERE v.model_id = $1 AND v.version = coalesce($2, v.version);
    IF $2 IS NULL THEN
        DELETE FROM cerebro.catalog_model_aliases a WHERE a.model_id = $1;
        DELETE FROM cerebro.catalog_model_grants g WHERE g.model_id = $1;
        DELETE FROM cerebro.catalog_models m WHERE m.model_id = $1;
    END IF;
{%- endcall %}

-- Drift. However long the texts of a row, or its arrays, are: what is shown is bounded.
{%- call writer('_add_drift', 'kind text, job_id bigint, encoding_of text, source_table text, output_table text, num_rows bigint, '
                ~ 'column_names text[], encodings text[], missing bigint[], unseen bigint[], trained_missing double precision[], '
                ~ 'trained_unseen double precision[], shifts double precision[]', 'records a drift for the role that calls') %}
    role := cerebro._writer(context);
    IF length(array_to_string($7, '')) > 1000000 OR length(array_to_string($8, '')) > 1000000 THEN
        RAISE EXCEPTION USING ERRCODE = '54000',
            MESSAGE = 'column_names, encodings: got more than 1000000 characters; allowed: names of columns and of encodings';
    END IF;
    INSERT INTO cerebro.catalog_drift (owner, kind, job_id, encoding_of, source_table, output_table, num_rows, column_names, encodings,
                                       missing, unseen, trained_missing, trained_unseen, shifts)
    VALUES (role, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
{%- endcall %}
{%- call writer('_forget_drift', '', 'removes what was recorded for roles of the caller before what keep_runs says', variables='kept    interval;') %}
    role := cerebro._writer(context);
    SELECT nullif(s.value, '')::interval INTO kept FROM cerebro.settings s WHERE s.name = 'keep_runs';
    DELETE FROM cerebro.catalog_drift d WHERE pg_has_role(role, d.owner, 'USAGE') AND d.recorded < now() - kept;
{%- endcall %}

-- Settings. Some are for superusers alone.
{%- call writer('_set_setting', 'name text, value text', 'writes a setting, or removes it') %}
    role := cerebro._administrator(context, 'cerebro_set', $1 COLLATE "C" = ANY ({{ of_superusers | sql_array }}));
    DELETE FROM cerebro.catalog_settings s WHERE s.name COLLATE "C" = $1;
    IF $2 IS NOT NULL THEN
        INSERT INTO cerebro.catalog_settings (name, value) VALUES ($1, $2);
    END IF;
{%- endcall %}

-- Registered functions. A name is given once.
{%- call writer('_register_function', 'name text, path text, package text, version text, expression text, places integer',
                'lets a name mean a function of a package, or an expression') %}
    role := cerebro._administrator(context, 'cerebro_register_function', false);
    INSERT INTO cerebro.catalog_functions (name, path, package, version, expression, places, registered_by)
    VALUES ($1, $2, $3, $4, $5, $6, role);
{%- endcall %}
{%- call writer('_unregister_function', 'name text', 'frees a name; false where nothing has it', 'boolean') %}
    role := cerebro._administrator(context, 'cerebro_unregister_function', false);
    PERFORM 1 FROM cerebro.catalog_functions f WHERE f.name COLLATE "C" = $1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM cerebro.catalog_functions f WHERE f.name COLLATE "C" = $1;
    RETURN true;
{%- endcall %}
