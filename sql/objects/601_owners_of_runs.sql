-- What a driver has written of a run decides what is resumed, from which states, into which tables: only the owner's
-- rights change it. Administrators see all runs, and may stop them, ask their drivers, forget their states and drop them.
CREATE OR REPLACE FUNCTION cerebro._check_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    may boolean := current_user = 'cerebro_owner';
    allowed cerebro.catalog_runs;
BEGIN
    IF may THEN
        NULL;
    ELSIF TG_TABLE_NAME = 'catalog_runs' THEN
        may := pg_has_role(OLD.owner, 'USAGE');
        IF NOT may THEN
            -- No more than that it is stopped, or has no states any more.
            allowed := NEW;
            allowed.states := CASE WHEN NEW.states IS NULL THEN OLD.states ELSE NEW.states END;
            IF NEW.status IN ('cancelled', 'paused', 'interrupted') THEN
                allowed.status := OLD.status;
                allowed.error := OLD.error;
                allowed.finished := OLD.finished;
            END IF;
            may := allowed::text = OLD::text;
        END IF;
    ELSE
        SELECT pg_has_role(r.owner, 'USAGE') INTO may FROM cerebro._runs r WHERE r.run_id = NEW.run_id;
    END IF;
    IF may IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('run_id: got %s, a run of another role; allowed: to cancel, pause or drop it, and to '
                             'remove its states', NEW.run_id),
            HINT = 'Its owner, or a role that has the rights of its owner, changes what the catalog says of it.';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION cerebro._check_owner() IS 'Internal: refuses changes of what the catalog says of runs of others.';
DROP TRIGGER IF EXISTS check_owner ON cerebro.catalog_runs;
{%- for table in ['configurations', 'architectures', 'plan', 'decisions', 'hops', 'updates', 'metrics', 'requests'] %}
DROP TRIGGER IF EXISTS check_owner ON cerebro.catalog_{{ table }};
{%- endfor %}
{% if dialect.triggers_write -%}
-- Insertions are checked by check_run.
{%- for table in ['runs', 'configurations', 'architectures', 'plan', 'decisions', 'hops', 'updates', 'metrics', 'requests'] %}
CREATE TRIGGER check_owner BEFORE UPDATE ON cerebro.catalog_{{ table }}
    FOR EACH ROW EXECUTE PROCEDURE cerebro._check_owner();
{%- endfor %}
{% endif -%}
