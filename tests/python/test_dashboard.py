"""Every expression of every dashboard returns data from a real Prometheus that scrapes a real server."""

import json
import os
import pathlib
import shutil
import subprocess
import threading
import time

import httpx
import pytest

from conftest import MODEL_NAME, ROOT, free_port

# Ranges must hold several scrapes, and scrapes are a second apart.
VARIABLES = {
    "${datasource}": "prometheus",
    "$__rate_interval": "10s",
    "$__interval": "5s",
    "$__range": "1m",
    "$model": ".*",
}
LOAD_SECONDS = 12
WAIT_SECONDS_MAX = 60


def expressions():
    """(dashboard, panel, expression), variables filled in."""
    found = []
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text())
        panels = list(dashboard["panels"])
        for panel in panels:
            panels += panel.get("panels", [])
        for panel in panels:
            for target in panel.get("targets", []):
                expression = target["expr"]
                for name, value in VARIABLES.items():
                    expression = expression.replace(name, value)
                assert "$" not in expression, f"{path.name}, {panel['title']}: unknown variable in {expression}"
                found.append((path.name, panel["title"], expression))
    return found


@pytest.fixture
def prometheus(server, tmp_path):
    binary = shutil.which("prometheus")
    if binary is None:
        assert not os.environ.get("CI"), "prometheus is missing: scripts/ensure_prometheus.sh installs it"
        pytest.skip("prometheus is not installed")
    config = tmp_path / "prometheus.yml"
    job = {"job_name": "updraft", "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}
    # JSON is YAML.
    config.write_text(
        json.dumps({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]})
    )
    port = free_port()
    log = tmp_path / "prometheus.log"
    line = [
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with open(log, "w") as out:
        process = subprocess.Popen(line, stdout=out, stderr=out)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as http:
        wait(lambda: is_up(http), f"prometheus does not start:\n{pathlib.Path(log).read_text()}")
        yield http
    process.terminate()
    process.wait(30)


def is_up(http):
    try:
        return http.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def wait(condition, message):
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < end, message
        time.sleep(0.2)


def query(http, expression):
    answer = http.get("/api/v1/query", params={"query": expression}).json()
    assert answer["status"] == "success", f"{expression}: {answer}"
    return answer["data"]["result"]


def load(server, stop):
    """A few streams at a time, some of them alike, until told to stop."""
    number = 0
    with server.http() as http:
        while not stop.is_set():
            number += 1
            messages = [{"role": "user", "content": f"Tell me about the number {number % 5}. " * 8}]
            request = {"model": MODEL_NAME, "messages": messages, "max_tokens": 12, "stream": True}
            with http.stream("POST", "/v1/chat/completions", json=request) as response:
                response.read()


def test_every_panel_has_data(server, prometheus):
    asked = expressions()
    assert len(asked) > 20
    stop = threading.Event()
    clients = [threading.Thread(target=load, args=(server, stop)) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        wait(lambda: query(prometheus, 'up{job="updraft"} == 1'), "prometheus cannot scrape the server")
        time.sleep(LOAD_SECONDS)
        empty = asked
        end = time.monotonic() + WAIT_SECONDS_MAX
        while empty and time.monotonic() < end:
            empty = [item for item in empty if not has_data(query(prometheus, item[2]))]
            time.sleep(1)
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert not empty, "no data for:\n" + "\n".join(f"{name}, {title}: {text}" for name, title, text in empty)


def has_data(result):
    """At least one sample that is a number."""
    return any(sample["value"][1] != "NaN" for sample in result)


def test_scrape_is_well_formed(server):
    with server.http() as http:
        response = http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    kinds = {}
    for line in response.text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, f"{name} is described twice"
            kinds[name] = kind
    assert kinds["vllm:num_requests_running"] == "gauge"
    assert kinds["vllm:generation_tokens_total"] == "counter"
    assert kinds["vllm:time_to_first_token_seconds"] == "histogram"
