-- Options of views are not looked at where rows are inserted on segments, and views cannot be looked into there: this
-- trigger checks them. With an argument it lets only those write who have the rights of the run's owner.
CREATE OR REPLACE FUNCTION cerebro._may_write(run_id bigint, role oid, as_administrator boolean)
    RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        owner oid;
    BEGIN
        -- Rights are no part of the query: it would be planned anew for each row then.
        SELECT r.owner INTO owner FROM cerebro.catalog_runs r WHERE r.run_id = $1;
        -- Nobody learns anything about roles that are not their own.
        RETURN FOUND AND pg_has_role(session_user, $2, 'MEMBER')
           AND (pg_has_role($2, owner, 'USAGE') OR $3 AND pg_has_role($2, 'cerebro_admin', 'USAGE'));
    END
    $$;
ALTER FUNCTION cerebro._may_write(bigint, oid, boolean) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._may_write(bigint, oid, boolean) IS
    'Internal: whether a role may write rows of a run, as its owner or also as an administrator.';
CREATE OR REPLACE FUNCTION cerebro._check_run()
    RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        IF cerebro._may_write(NEW.run_id, cerebro._role(), TG_NARGS = 0) IS NOT TRUE THEN
            RAISE EXCEPTION USING ERRCODE = '44000', MESSAGE = format(
                'run_id: got %s; you have no run of that number', NEW.run_id);
        END IF;
        RETURN NEW;
    END
    $$;
