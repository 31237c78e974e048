"""What the SQL functions call, inside a backend: plpy and GD are handed in as arguments."""
