-- What is seen of registered models, by whom: see docs/decisions/models-by-owner.md.

{%- set views = ['registered_models', 'registered_versions', '_usable_states', '_usable_versions', '_usable_aliases',
                 '_usable_models', '_model_aliases_now', '_model_grants', '_model_aliases',
                 '_model_states', '_model_versions', '_models'] %}
{%- set parts = ['model_versions', 'model_states', 'model_aliases', 'model_grants'] %}
{% for view in views %}
DROP VIEW IF EXISTS cerebro.{{ view }};
{%- endfor %}

-- Through these a model is seen by who keeps it: its owner, and administrators, who may remove it.
CREATE VIEW cerebro._models WITH (security_barrier) AS
SELECT m.* FROM cerebro.catalog_models m
 WHERE pg_has_role(m.owner, 'USAGE') OR pg_has_role('cerebro_admin', 'USAGE');
COMMENT ON VIEW cerebro._models IS 'Internal: the registered models that the caller keeps.';
{% for part in parts %}
CREATE VIEW cerebro._{{ part }} WITH (security_barrier) AS
SELECT t.* FROM cerebro.catalog_{{ part }} t
 WHERE EXISTS (SELECT 1 FROM cerebro._models m WHERE m.model_id = t.model_id);
COMMENT ON VIEW cerebro._{{ part }} IS 'Internal: rows of the models that the caller keeps.';
{% endfor %}
-- Who keeps a model reads what is in it as those do who use it: an administrator does neither.
GRANT SELECT ON cerebro._models, cerebro._model_aliases, cerebro._model_grants TO cerebro_user;
GRANT SELECT (model_id, version, description, tags) ON cerebro._model_versions TO cerebro_user;
GRANT SELECT (model_id, version, chunk) ON cerebro._model_states TO cerebro_user;

-- Through these models are used: by their owner, and by those whom the owner allowed it.
CREATE VIEW cerebro._usable_models WITH (security_barrier) AS
SELECT m.model_id, m.owner, m.name FROM cerebro.catalog_models m
 WHERE pg_has_role(m.owner, 'USAGE')
    OR EXISTS (SELECT 1 FROM cerebro.catalog_model_grants g
                WHERE g.model_id = m.model_id AND pg_has_role(g.grantee, 'USAGE'));
COMMENT ON VIEW cerebro._usable_models IS 'Internal: the registered models that the caller may use.';

CREATE VIEW cerebro._model_aliases_now AS
SELECT DISTINCT ON (a.model_id, a.alias) a.model_id, a.alias, a.version, a.change_id, a.previous
  FROM cerebro.catalog_model_aliases a
 ORDER BY a.model_id, a.alias, a.change_id DESC;
COMMENT ON VIEW cerebro._model_aliases_now IS 'Internal: the last change of each alias, for other views.';

CREATE VIEW cerebro._usable_aliases WITH (security_barrier) AS
SELECT a.model_id, a.alias, a.version FROM cerebro._model_aliases_now a
 WHERE a.version IS NOT NULL
   AND EXISTS (SELECT 1 FROM cerebro._usable_models m WHERE m.model_id = a.model_id);
COMMENT ON VIEW cerebro._usable_aliases IS 'Internal: aliases of the models that the caller may use.';

-- The names of the columns are those of the tables of a run.
CREATE VIEW cerebro._usable_versions WITH (security_barrier) AS
SELECT v.version_id AS mst_key, v.model_id, v.version, v.model_arch, v.compile_params, v.fit_params,
       v.facts, v.mst_key AS run_key
  FROM cerebro.catalog_model_versions v
 WHERE EXISTS (SELECT 1 FROM cerebro._usable_models m WHERE m.model_id = v.model_id);
COMMENT ON VIEW cerebro._usable_versions IS 'Internal: versions of the models that the caller may use.';

CREATE VIEW cerebro._usable_states WITH (security_barrier) AS
SELECT v.version_id AS mst_key, s.chunk, s.state
  FROM cerebro.catalog_model_states s
  JOIN cerebro.catalog_model_versions v ON v.model_id = s.model_id AND v.version = s.version
 WHERE EXISTS (SELECT 1 FROM cerebro._usable_models m WHERE m.model_id = v.model_id);
COMMENT ON VIEW cerebro._usable_states IS 'Internal: states of the models that the caller may use.';

CREATE VIEW cerebro.registered_models WITH (security_barrier) AS
SELECT cerebro._role_name(m.owner) AS owner, m.name, m.description, m.tags,
       (SELECT max(v.version) FROM cerebro.catalog_model_versions v
         WHERE v.model_id = m.model_id) AS latest_version,
       ARRAY(SELECT a.alias || ':' || a.version FROM cerebro._model_aliases_now a
              WHERE a.model_id = m.model_id AND a.version IS NOT NULL ORDER BY a.alias) AS aliases,
       pg_has_role(m.owner, 'USAGE') AS is_mine,
       CASE WHEN pg_has_role(m.owner, 'USAGE') OR pg_has_role('cerebro_admin', 'USAGE')
            THEN ARRAY(SELECT cerebro._role_name(g.grantee) FROM cerebro.catalog_model_grants g
                        WHERE g.model_id = m.model_id ORDER BY 1)
       END AS granted_to,
       m.created
  FROM cerebro.catalog_models m
 WHERE pg_has_role(m.owner, 'USAGE') OR pg_has_role('cerebro_admin', 'USAGE')
    OR EXISTS (SELECT 1 FROM cerebro._usable_models u WHERE u.model_id = m.model_id);
COMMENT ON VIEW cerebro.registered_models IS
'Registered models: your own and those that you were granted, or all for members of cerebro_admin.';

CREATE VIEW cerebro.registered_versions WITH (security_barrier) AS
SELECT cerebro._role_name(m.owner) AS owner, m.name, v.version, v.version_id,
       ARRAY(SELECT a.alias FROM cerebro._model_aliases_now a
              WHERE a.model_id = v.model_id AND a.version = v.version ORDER BY a.alias) AS aliases,
       v.description, v.tags, v.run_id, v.mst_key, v.compile_params, v.fit_params, v.lineage,
       cerebro._role_name(v.registered_by) AS registered_by, v.registered, v.report
  FROM cerebro.catalog_model_versions v
  JOIN cerebro.catalog_models m ON m.model_id = v.model_id
 WHERE pg_has_role(m.owner, 'USAGE') OR pg_has_role('cerebro_admin', 'USAGE')
    OR EXISTS (SELECT 1 FROM cerebro._usable_models u WHERE u.model_id = m.model_id);
COMMENT ON VIEW cerebro.registered_versions IS
'Versions of the models of cerebro.registered_models, with where each comes from.';

GRANT SELECT ON cerebro._usable_models, cerebro._usable_versions, cerebro._usable_states,
    cerebro._usable_aliases, cerebro.registered_models, cerebro.registered_versions TO cerebro_user;
{% for view in views %}
ALTER VIEW cerebro.{{ view }} OWNER TO cerebro_owner;
{%- endfor %}
