-- Until now administrators could name any directory of the server for event files: from here on it is a folder below the
-- setting files_root, which only superusers may set.
DO $tensorboard$
DECLARE
    place text := (SELECT value FROM cerebro.catalog_settings WHERE name = 'tensorboard_dir' AND value <> '');
BEGIN
    IF place IS NOT NULL THEN
        RAISE WARNING USING
            MESSAGE = format('the setting tensorboard_dir was %s, which a member of cerebro_admin may have chosen; it is '
                             'removed, and nothing is written outside of the database', place),
            HINT = format('If files may be written there: SELECT cerebro.cerebro_set(''files_root'', %L); event files lie in '
                          'its folder tensorboard then.', place);
    END IF;
END
$tensorboard$;
DELETE FROM cerebro.catalog_settings WHERE name IN ('files_root', 'tensorboard_dir');
