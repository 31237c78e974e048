from cerebro_db.server import models

return models.inspect(plpy, GD, model_arch, model_weights)
