"""Fixtures: real servers, started from the built binary with the demo model.

UPDRAFT_BIN names the binary (default: target/debug/updraft). A server that a test started is stopped with
SIGTERM and must leave with code 0, unless the test says otherwise.
"""

import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import httpx
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("UPDRAFT_BIN", ROOT / "target/debug/updraft"))
# Loading an unoptimised build on a busy machine takes a while.
START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
MODEL_NAME = "SmolLM2-135M-Instruct"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A running `updraft serve`. Its log is kept and shown when a test fails."""

    def __init__(self, model, *arguments, key=None, environment=None, wait=True):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = key
        self.log_file = tempfile.NamedTemporaryFile("w+", suffix=".log", prefix="updraft-")
        line = [str(BINARY), "serve", str(model), "--host", "127.0.0.1", "--port", str(self.port), *arguments]
        line += ["--api-key", key] if key else []
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("UPDRAFT_", "VLLM_"))}
        variables |= environment or {}
        self.process = subprocess.Popen(line, stdout=self.log_file, stderr=subprocess.STDOUT, env=variables)
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self):
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log()}")
            try:
                if httpx.get(self.url + "/ready", timeout=2, trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"not ready after {START_SECONDS_MAX} s:\n{self.log()}")

    def log(self):
        return pathlib.Path(self.log_file.name).read_text(errors="replace")

    @property
    def headers(self):
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def http(self, **options):
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=60, trust_env=False, **options)

    def openai(self, **options):
        http = httpx.Client(trust_env=False)
        options = {"api_key": self.key or "none", "max_retries": 0, "timeout": 60, "http_client": http} | options
        return openai.OpenAI(base_url=self.url + "/v1", **options)

    def metric(self, name, **labels):
        """Sum of the samples of this name that carry the labels; None when there are none."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        with self.http() as http:
            lines = http.get("/metrics").text.splitlines()
        found = [
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.split("{")[0].split(" ")[0] == name and all(pair in line for pair in wanted)
        ]
        return sum(found) if found else None

    def wait_for_metric(self, name, test, seconds=20):
        end = time.monotonic() + seconds
        while not test(value := self.metric(name)):
            assert time.monotonic() < end, f"{name} is still {value} after {seconds} s"
            time.sleep(0.05)
        return value

    def stop(self, send=signal.SIGTERM):
        """Asks the server to stop and gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(send)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"still running {STOP_SECONDS_MAX} s after a signal:\n{self.log()}") from None


@pytest.fixture(scope="session")
def model():
    """Path of the demo model; fetched once."""
    fetched = subprocess.run([ROOT / "scripts/fetch_demo_model.sh"], stdout=subprocess.PIPE, text=True, check=True)
    return pathlib.Path(fetched.stdout.strip())


@pytest.fixture
def start(model):
    """Starts servers of a test's own: start("--max-num-seqs", "4", key="k")."""
    servers = []

    def start_one(*arguments, served=model, name=True, **options):
        names = ["--served-model-name", MODEL_NAME] if name else []
        servers.append(Server(served, *names, *arguments, **options))
        return servers[-1]

    yield start_one
    codes = [server.stop() if server.process.returncode is None else 0 for server in servers]
    assert codes == [0] * len(codes), f"exit codes {codes}:\n{servers[-1].log()}"


@pytest.fixture(scope="session")
def server(model):
    """One server that most tests share; whatever they do, it must still be ready for the next."""
    shared = Server(model, "--served-model-name", MODEL_NAME, "smollm2", "--kv-cache-memory-bytes", "1GiB")
    yield shared
    log = shared.log()
    assert shared.stop() == 0, log
    assert "panicked at" not in log, log


@pytest.fixture(autouse=True)
def still_ready(request):
    """After each test the shared server, if the test used it, answers."""
    yield
    if "server" in request.fixturenames:
        shared = request.getfixturevalue("server")
        with shared.http() as http:
            assert http.get("/ready").status_code == 200, shared.log()


@pytest.fixture
def client(server):
    return server.openai()
