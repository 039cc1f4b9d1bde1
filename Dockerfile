# The image of the sync service, the verifier and syncctl. Build it with: docker build -t syncsvc .
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv
COPY . /source
RUN /source/packaging/image/install /source

FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/syncsvc /opt/syncsvc
ENV PATH=/opt/syncsvc/bin:$PATH PYTHONUNBUFFERED=1
# Nothing is written to the root file system: run it read-only, with a /tmp in memory.
USER 10001:10001
EXPOSE 27182 27020
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["live"]
ENTRYPOINT ["syncsvc"]
