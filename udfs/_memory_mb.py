from cerebro_db.server import version

return version.memory_mb()
