# Three images from one file. What they install is pinned with its hashes in requirements/, with the
# versions of requirements.lock; anything else is refused:
#
#   docker build --target control --tag penstock/control .     controller, Brain, scheduler
#   docker build --target runtime --tag penstock/runtime .     trainer, agent, data worker
#   docker build --target examples --tag penstock/examples .   the same with PyTorch and examples/
#
# The second holds no operator, web or database framework, and is what training images build on. Each
# says what is in it: /opt/penstock/sbom.cdx.json. A release names the base image by digest, which
# `docker buildx imagetools inspect python:3.11-slim-bookworm` prints:
# --build-arg PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# The time of the sources, for files whose bytes would otherwise hold the time of the build.
ARG SOURCE_DATE_EPOCH=0
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements requirements
RUN pip install --require-hashes --no-deps --requirement requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY api api
COPY base base
COPY brain brain
COPY client client
COPY controller controller
COPY crds crds
COPY kube kube
COPY local local
COPY runtime runtime
COPY scheduler scheduler
COPY sim sim
COPY throughput throughput
COPY wire wire
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# Compiled modules name the hash of their source and not its time, so that two builds are the same.
FROM build AS control-environment
RUN python -m venv --without-pip /opt/penstock \
 && pip --python /opt/penstock/bin/python install --no-compile --no-deps --require-hashes \
      --requirement requirements/control.lock \
 && pip --python /opt/penstock/bin/python install --no-compile --no-deps --no-index /wheels/*.whl \
 && pip --python /opt/penstock/bin/python check \
 && /opt/penstock/bin/python -m penstock.base.bill_of_materials > /opt/penstock/sbom.cdx.json \
 && /opt/penstock/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/penstock/lib

FROM build AS runtime-environment
RUN python -m venv --without-pip /opt/penstock \
 && pip --python /opt/penstock/bin/python install --no-compile --no-deps --require-hashes \
      --requirement requirements/runtime.lock \
 && pip --python /opt/penstock/bin/python install --no-compile --no-deps --no-index /wheels/*.whl \
 && pip --python /opt/penstock/bin/python check \
 && /opt/penstock/bin/python -m penstock.base.bill_of_materials > /opt/penstock/sbom.cdx.json \
 && /opt/penstock/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/penstock/lib

FROM build AS examples-environment
RUN python -m venv --without-pip /opt/penstock \
 && pip --python /opt/penstock/bin/python install --no-compile --no-deps --require-hashes \
      --requirement requirements/examples.lock \
 && pip --python /opt/penstock/bin/python install --no-compile --no-deps --no-index /wheels/*.whl \
 && pip --python /opt/penstock/bin/python check \
 && /opt/penstock/bin/python -m penstock.base.bill_of_materials > /opt/penstock/sbom.cdx.json \
 && /opt/penstock/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/penstock/lib

FROM ${PYTHON_IMAGE} AS base
ENV PATH=/opt/penstock/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /tmp
CMD ["penstock", "--help"]

FROM base AS runtime
COPY --from=runtime-environment /opt/penstock /opt/penstock

# Its jobs name their programs from the folder that they start in, and write beside them.
FROM base AS examples
COPY --from=examples-environment /opt/penstock /opt/penstock
COPY examples examples

FROM base AS control
COPY --from=control-environment /opt/penstock /opt/penstock
