# The server in a container: `docker build --target cpu .` or `--target cuda .`; see docs/serving.md.
FROM python:3.11-slim AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
RUN useradd --create-home --uid 10001 dspark
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY dspark dspark
COPY kernels kernels
COPY rules rules
COPY runtime runtime
COPY schemas schemas
EXPOSE 8000
# Its start is short once the weights are read; those may take minutes.
HEALTHCHECK --interval=10s --start-period=10m CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health/ready')"]

FROM base AS cpu
RUN pip install --extra-index-url https://download.pytorch.org/whl/cpu '.[cpu,serve]' --constraint constraints.txt
USER dspark
WORKDIR /home/dspark
# Inside a container the loopback reaches nobody; what is published is for `docker run -p` to say.
ENTRYPOINT ["dspark", "serve", "--host", "0.0.0.0"]

FROM base AS cuda
ARG CUDA=12
RUN pip install ".[cuda${CUDA},serve]" --constraint constraints.txt
USER dspark
WORKDIR /home/dspark
ENTRYPOINT ["dspark", "serve", "--host", "0.0.0.0", "--device", "cuda"]
