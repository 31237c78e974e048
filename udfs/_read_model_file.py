from cerebro_db.server import models

return models.read_file(plpy, GD, file)
