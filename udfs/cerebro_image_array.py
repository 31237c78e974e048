from cerebro_db.server import images

return images.values(plpy, image, image_shape, image_format, normalizing_const)
