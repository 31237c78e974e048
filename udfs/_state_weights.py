from cerebro_db.server import models

return models.state_weights(plpy, GD, state)
