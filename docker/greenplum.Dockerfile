# Greenplum with plpython3u for Python 3.11, and Cerebro-DB installed into the database at the first
# start. The image below brings a coordinator and two segments, and no plpython3u: it is built here.
ARG GREENPLUM_VERSION=6.27.1

FROM woblerr/greenplum:${GREENPLUM_VERSION}-oraclelinux8 AS plpython
ARG GREENPLUM_VERSION
RUN dnf -y install bison bzip2 flex gcc gcc-c++ make perl python3.11-devel diffutils \
    && dnf clean all
# Of the server's own version: the extension must fit its headers.
RUN mkdir /tmp/greenplum \
    && curl -fsSL "https://github.com/woblerr/gpdb/archive/refs/tags/${GREENPLUM_VERSION}.tar.gz" \
        | tar -xz --strip-components=1 -C /tmp/greenplum
WORKDIR /tmp/greenplum
RUN echo "${GREENPLUM_VERSION} build dev" > VERSION \
    && PYTHON=/usr/bin/python3.11 ./configure --prefix=/usr/local/greenplum-db --with-python \
        --disable-orca --disable-gpperfmon --disable-gpfdist --disable-gpcloud \
        --disable-mapreduce --disable-orafce --without-quicklz --without-libcurl \
        --without-zstd --without-readline --without-zlib \
    # Python 3.11 no longer has the header eval.h.
    && sed -i 's/#include <eval.h>/#include <Python.h>/' src/pl/plpython/plpython.h \
    && make -C src/backend ../../src/include/parser/gram.h ../../src/include/catalog/schemapg.h \
        ../../src/include/utils/fmgroids.h ../../src/include/utils/errcodes.h \
        ../../src/include/utils/probes.h \
    && make -C src/pl/plpython \
    && mkdir -p /opt/plpython/lib /opt/plpython/extension \
    && cp src/pl/plpython/plpython3.so /opt/plpython/lib/ \
    && cp src/pl/plpython/plpython3u.control src/pl/plpython/plpython3u--*.sql \
        /opt/plpython/extension/

FROM woblerr/greenplum:${GREENPLUM_VERSION}-oraclelinux8
RUN dnf -y install python3.11 python3.11-pip \
    && dnf clean all

COPY --from=plpython /opt/plpython/lib/ /usr/local/greenplum-db/lib/postgresql/
COPY --from=plpython /opt/plpython/extension/ /usr/local/greenplum-db/share/postgresql/extension/

# /usr/bin/python3.11 is the Python that plpython3u links to.
COPY pyproject.toml README.md /tmp/cerebro-db/
COPY cerebro_db /tmp/cerebro-db/cerebro_db
COPY sql /tmp/cerebro-db/sql
COPY udfs /tmp/cerebro-db/udfs
RUN umask 022 \
    && /usr/bin/python3.11 -m venv /opt/cerebro-db \
    && /opt/cerebro-db/bin/pip install --no-cache-dir "/tmp/cerebro-db[cpu]" \
    && rm -rf /tmp/cerebro-db

COPY --chmod=755 docker/install-cerebro-greenplum.sh /docker-entrypoint-initdb.d/10-cerebro.sh
