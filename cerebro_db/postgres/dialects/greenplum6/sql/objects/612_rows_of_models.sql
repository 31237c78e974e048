-- Rows of registered models are added by those alone who have the rights of the owner.
CREATE OR REPLACE FUNCTION cerebro._may_keep(model_id bigint, role oid)
    RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        RETURN EXISTS (SELECT 1 FROM cerebro.catalog_models m
                        WHERE m.model_id = $1 AND pg_has_role($2, m.owner, 'USAGE'));
    END
    $$;
ALTER FUNCTION cerebro._may_keep(bigint, oid) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._may_keep(bigint, oid) IS
    'Internal: whether a role may add rows of a registered model.';
CREATE OR REPLACE FUNCTION cerebro._check_model()
    RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        IF NOT cerebro._may_keep(NEW.model_id, cerebro._role()) THEN
            RAISE EXCEPTION USING ERRCODE = '44000', MESSAGE = format(
                'model_id: got %s; you have no model of that number', NEW.model_id);
        END IF;
        RETURN NEW;
    END
    $$;
