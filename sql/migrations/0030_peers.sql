-- Until now these names meant nothing, and members of cerebro_admin could store them: only superusers may set them.
DELETE FROM cerebro.catalog_settings WHERE name IN ('peer_network', 'peer_ports');
