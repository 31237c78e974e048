from cerebro_db.server import images

return images.fault(plpy, data, shape, format, max_pixels)
