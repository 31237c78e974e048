-- Configurations of one run are ranked by one metric, or else by loss.

UPDATE cerebro.catalog_configurations SET goal = 'loss' WHERE run_id IN (
    SELECT c.run_id
      FROM cerebro.catalog_configurations c
      LEFT JOIN cerebro.catalog_metrics m ON m.run_id = c.run_id AND m.mst_key = c.mst_key
     GROUP BY c.run_id
    HAVING pg_catalog.count(DISTINCT c.goal) > 1 OR pg_catalog.count(DISTINCT m.metric_names[1]) > 1);
