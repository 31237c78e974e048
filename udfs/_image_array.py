from cerebro_db.server import images

return images.array(plpy, data, shape, format, max_pixels)
