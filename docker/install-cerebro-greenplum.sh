#!/bin/sh
# Run by the image's start script when it has made a new cluster.
set -eu
# Of the cluster's own Python, which is another one.
unset PYTHONHOME PYTHONPATH
/opt/cerebro-db/bin/cerebro install \
    --dsn "host=/tmp dbname=$GREENPLUM_DATABASE_NAME user=$GREENPLUM_USER"
