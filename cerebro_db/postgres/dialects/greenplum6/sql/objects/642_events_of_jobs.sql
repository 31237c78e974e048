-- Events of jobs are written by their owners.
CREATE OR REPLACE FUNCTION cerebro._may_tell(job_id bigint, role oid)
    RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        owner oid;
    BEGIN
        SELECT j.owner INTO owner FROM cerebro.catalog_jobs j WHERE j.job_id = $1;
        RETURN FOUND AND (pg_has_role($2, owner, 'USAGE') OR pg_has_role($2, 'cerebro_admin', 'USAGE')
            OR (SELECT r.rolname FROM pg_roles r WHERE r.oid = $2) = 'cerebro_owner');
    END
    $$;
ALTER FUNCTION cerebro._may_tell(bigint, oid) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._may_tell(bigint, oid) IS
    'Internal: whether a role may write events of a job.';
CREATE OR REPLACE FUNCTION cerebro._check_job_event()
    RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        IF cerebro._may_tell(NEW.job_id, cerebro._role()) IS NOT TRUE THEN
            RAISE EXCEPTION USING ERRCODE = '44000', MESSAGE = format(
                'job_id: got %s; you have no job of that number', NEW.job_id);
        END IF;
        RETURN NEW;
    END
    $$;
COMMENT ON FUNCTION cerebro._check_job_event() IS
    'Internal: refuses events of jobs that the caller may not tell of.';
DROP TRIGGER IF EXISTS check_job_event ON cerebro.catalog_job_events;
CREATE TRIGGER check_job_event BEFORE INSERT ON cerebro.catalog_job_events
    FOR EACH ROW EXECUTE PROCEDURE cerebro._check_job_event();
