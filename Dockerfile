# Debian 12 with AutoMap's planner and trainer, as the .debs that scripts/package.sh makes:
#   docker build -t automap . && docker run --rm automap automap infer llama3-8b --cluster h100-2x8
FROM debian:bookworm AS build
COPY scripts/install_dependencies.sh /automap/scripts/
RUN apt-get update -q && /automap/scripts/install_dependencies.sh --train --milp --packages
COPY . /automap
RUN /automap/scripts/package.sh deb

FROM debian:bookworm-slim
COPY --from=build /automap/build/packages/*.deb /tmp/
RUN apt-get update -q && apt-get install -y -q --no-install-recommends python3 /tmp/*.deb && rm -rf /tmp/*.deb /var/lib/apt/lists/*
CMD ["automap", "--help"]
