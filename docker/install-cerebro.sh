#!/bin/sh
# Run by the image's entry point when it has made a new database.
set -eu
/opt/cerebro-db/bin/cerebro install \
    --dsn "host=/var/run/postgresql dbname=$POSTGRES_DB user=$POSTGRES_USER"
