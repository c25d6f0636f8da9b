"""The Ascend device on the simulated CANN: faults of every class, at every moment, cost nobody a token.

UPDRAFT_DRILL_RUNS says how often each drill is repeated (default 1); the drills of one repetition share nothing.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import httpx
import pytest

from conftest import BINARY, ROOT, Server

RUNS = int(os.environ.get("UPDRAFT_DRILL_RUNS", "1"))
MODEL = ROOT / "tests/fixtures/models/qwen3-bf16"
STREAMS = 32
TOKENS = 24
VOCABULARY = 480
# How long a step may take here: one that hangs is waited for twice.
STEP_DEADLINE = "0.5"
# A child is found dead, stopped or stuck within two seconds; a busy machine may take a moment longer to notice.
DETECTED_SECONDS_MAX = 5.0
# One for all streams: making one takes longer than their answers.
CLIENT = httpx.Client(trust_env=False, timeout=120, limits=httpx.Limits(max_connections=2 * STREAMS))


@pytest.fixture(scope="session")
def cann(tmp_path_factory):
    """Folder of a CANN installation whose libraries are the simulation."""
    home = tmp_path_factory.mktemp("cann")
    subprocess.run([ROOT / "crates/acl-sim/scripts/layout.sh", BINARY.parent, home], check=True)
    return home


@pytest.fixture
def ascend(cann, tmp_path):
    """Starts servers on the simulated device: ascend("--enforce-eager", faults="...")."""
    servers = []

    def start(*arguments, faults="", model=MODEL, environment=None):
        control = tmp_path / f"control-{len(servers)}"
        variables = {"ASCEND_HOME_PATH": str(cann), "ACL_SIM_CONTROL": str(control), "ACL_SIM_FAULTS": faults}
        line = ["--device", "ascend", "--served-model-name", "m", "--kv-cache-memory-bytes", "64MiB"]
        line += ["--max-num-seqs", str(STREAMS), "--step-deadline", STEP_DEADLINE, *arguments]
        server = Server(model, *line, environment=variables | (environment or {}))
        server.control = control
        servers.append(server)
        return server

    yield start
    for server in servers:
        if server.process.poll() is None:
            assert server.stop() == 0, server.log()


def arm(server, *lines):
    """Gives the simulation fault rules while the server runs."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(server.control))
        answers = control.makefile("r")
        for line in lines:
            control.sendall(line.encode() + b"\n")
            answer = answers.readline().strip()
            assert answer == "ok", f"{line}: {answer}"


def prompt(index):
    """Prompts of all lengths, some with a common beginning."""
    length = 3 + index * 11 % 140
    shared = [(7 * at) % VOCABULARY for at in range(min(length, 40))]
    return shared + [(13 * at + 5 * index) % VOCABULARY for at in range(40, length)] + [index]


def complete(server, index, **options):
    body = {"model": "m", "prompt": prompt(index), "max_tokens": TOKENS, "ignore_eos": True}
    body |= {"temperature": 0.9 if index % 2 else 0.0, "seed": index, "return_token_ids": True} | options
    response = CLIENT.post(server.url + "/v1/completions", json=body)
    assert response.status_code == 200, f"{response.status_code}: {response.text}\n{server.log()}"
    return response.json()["choices"][0]["token_ids"]


def all_streams(server, **options):
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        return list(pool.map(lambda index: complete(server, index, **options), range(STREAMS)))


@contextlib.contextmanager
def streams_running(server, **options):
    """All streams, started; the block runs when some of them have tokens; yields a list that gets the results."""
    results = []
    before = server.metric("vllm:generation_tokens_total") or 0
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        running = [pool.submit(complete, server, index, **options) for index in range(STREAMS)]
        server.wait_for_metric("vllm:generation_tokens_total", lambda value: (value or 0) >= before + 2 * STREAMS)
        yield results
        results.extend(stream.result() for stream in running)


@pytest.fixture(scope="session")
def undisturbed(cann, tmp_path_factory):
    """What all streams answer without graphs and without faults, each alone."""
    variables = {"ASCEND_HOME_PATH": str(cann)}
    server = Server(
        MODEL, "--device", "ascend", "--served-model-name", "m", "--kv-cache-memory-bytes", "64MiB",
        "--enforce-eager", "--no-enable-prefix-caching", environment=variables,
    )
    tokens = [complete(server, index) for index in range(STREAMS)]
    assert server.stop() == 0, server.log()
    assert len({tuple(row) for row in tokens}) > STREAMS // 2, "too much alike to tell anything"
    return tokens


MODES = ["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]


@pytest.mark.parametrize("mode", MODES)
def test_every_graph_mode_gives_the_tokens_of_eager_steps(ascend, undisturbed, mode):
    server = ascend("--compilation-config", f'{{"cudagraph_mode": "{mode}"}}')
    assert all_streams(server) == undisturbed
    # By now idle moments have brought more graphs.
    if mode != "NONE":
        server.wait_for_metric("updraft_graph_captures_total", lambda count: (count or 0) >= 2)
    assert all_streams(server) == undisturbed
    replays = server.metric("updraft_graph_replays_total") or 0
    assert (replays > 0) == (mode != "NONE"), server.log()
    if mode != "NONE":
        assert "ACL graph captured" in server.log() and "NPUGraph replay" in server.log()


@pytest.mark.parametrize("mode", ["FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"])
def test_drafts_change_no_token(ascend, undisturbed, mode):
    drafts = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    server = ascend("--speculative-config", json.dumps(drafts), "--compilation-config.cudagraph_mode", mode)
    assert all_streams(server) == undisturbed
    assert server.metric("vllm:spec_decode_num_draft_tokens_total") > 0
    # Pieces take any step; a whole step that decodes has no drafts.
    eager = server.metric("updraft_graph_eager_steps_total", reason="verify")
    assert (eager > 0) == (mode == "FULL_DECODE_ONLY"), eager


DENSE = ["llama-untied-sharded", "llama3-rope-tied", "mistral-swa", "qwen2-bias", "qwen3-bf16", "gemma3-text"]
# What the fixtures say about computing in bfloat16: a step may choose otherwise when the two best logits are nearer to
# each other than this many times the error of the whole model.
GAP_FACTOR = 4


@pytest.mark.parametrize("graphs", ["--enforce-eager", "--no-enforce-eager"])
@pytest.mark.parametrize("name", DENSE)
def test_fixtures_are_continued_as_their_reference_says(ascend, name, graphs):
    folder = ROOT / "tests/fixtures/models" / name
    expected = json.loads((folder / "expected.json").read_text())
    error = expected["numerics"]["whole_model_in_bf16_vs_f32"]["rms"]
    server = ascend(graphs, model=folder)
    compared = 0
    for case in expected["cases"]:
        gaps = case["greedy_gaps"]
        sure = next((at for at, gap in enumerate(gaps) if gap < GAP_FACTOR * error), len(gaps))
        body = {"model": "m", "prompt": case["prompt_ids"], "max_tokens": len(gaps), "ignore_eos": True}
        body |= {"temperature": 0, "repetition_penalty": 1, "return_token_ids": True}
        response = httpx.post(server.url + "/v1/completions", json=body, timeout=120, trust_env=False)
        assert response.status_code == 200, response.text
        tokens = response.json()["choices"][0]["token_ids"]
        assert tokens[:sure] == case["greedy_ids"][:sure], f"{name}, {case['name']}"
        compared += sure
    assert compared >= 10, f"only {compared} tokens could be compared"


def test_the_demo_model_says_what_it_says_on_the_cpu(ascend, model):
    question = "The three largest cities of France are"
    body = {"model": "m", "prompt": question, "max_tokens": 24, "temperature": 0, "logprobs": 2}

    def ask(server):
        response = httpx.post(server.url + "/v1/completions", json=body, timeout=300, trust_env=False)
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["logprobs"]

    room = ["--max-model-len", "512", "--step-deadline", "60"]
    reference = ask(ascend("--device", "cpu", "--dtype", "float32", *room, model=model))
    # Log-probabilities of the two best tokens nearer than this may change places in bfloat16.
    gaps = [max(step.values()) - sorted(step.values())[-2] for step in reference["top_logprobs"]]
    sure = next((at for at, gap in enumerate(gaps) if gap < 0.35), len(gaps))
    assert sure >= 3, gaps
    answers = [
        ask(ascend("--compilation-config", f'{{"cudagraph_mode": "{mode}"}}', *room, model=model))["tokens"]
        for mode in MODES
    ]
    assert all(tokens == answers[0] for tokens in answers), answers
    assert answers[0][:sure] == reference["tokens"][:sure]


# Each class with one of its codes. The classes and what they lead to: `crates/core/src/recovery.rs`.
CODES = {
    "memory": 207001,
    "retry": 507002,
    "wait_more": 507047,
    "graph": 507009,
    "graph_dead": 507011,
    "stream": 507015,
    "device": 507013,
    "device_memory": 507053,
    "remote": 507057,
    "process": 507899,
    "unclear": 507000,
    "call": 107000,
    "environment": 507008,
    "unsupported": 207000,
}
MOMENTS = {
    "prefill": ("--enforce-eager", "phase=eager operator=aclnnMm nth=3"),
    "decode": ("--enforce-eager", "phase=eager operator=aclnnMm nth=700"),
    "replay": ("--no-enforce-eager", "phase=replay operator=aclnnMm nth=60"),
    "capture": ("--no-enforce-eager", "phase=capture operator=aclnnMm nth=40"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", CODES)
def test_a_fault_costs_nobody_a_token(ascend, undisturbed, name, moment):
    graphs, where = MOMENTS[moment]
    for _ in range(RUNS):
        # From the start on: captures happen before the first request.
        server = ascend(graphs, faults=f"{where} code={CODES[name]}" if moment == "capture" else "")
        if moment != "capture":
            assert all_streams(server) == undisturbed
            arm(server, f"{where} code={CODES[name]}")
        assert all_streams(server) == undisturbed, server.log()
        faults = server.wait_for_metric("updraft_device_faults_total", lambda count: (count or 0) >= 1)
        assert faults >= 1
        recovered(server)
        assert server.stop() == 0, server.log()


def recovered(server, in_time=True):
    """The server is ready again, and every recovery was within its time."""
    end = time.monotonic() + 10
    while httpx.get(server.url + "/ready", trust_env=False).status_code != 200:
        assert time.monotonic() < end, server.log()
        time.sleep(0.02)
    total = server.metric("updraft_device_recovery_seconds_count") or 0
    within = server.metric("updraft_device_recovery_seconds_bucket", le="2") or 0
    assert within == total or not in_time, f"{total - within} of {total} recoveries took longer:\n{server.log()}"


@pytest.mark.parametrize("graphs", ["--enforce-eager", "--no-enforce-eager"])
def test_a_step_that_hangs_is_given_up_and_run_again(ascend, undisturbed, graphs):
    for _ in range(RUNS):
        server = ascend(graphs)
        assert all_streams(server) == undisturbed
        arm(server, "operator=aclnnMm nth=100 hang")
        assert all_streams(server) == undisturbed, server.log()
        assert server.metric("updraft_device_faults_total", **{"class": "wait_more"}) >= 1, server.log()


def test_a_device_without_a_spare_is_out_of_service_with_a_reason(ascend):
    server = ascend("--enforce-eager", environment={"ASCEND_RT_VISIBLE_DEVICES": "0"})
    arm(server, "device=0 operator=any code=507899 times=always")
    body = {"model": "m", "prompt": prompt(1), "max_tokens": 4}
    end = time.monotonic() + 60
    while True:
        response = httpx.post(server.url + "/v1/completions", json=body, timeout=60, trust_env=False)
        if response.status_code == 503 and "out of service" in response.text:
            break
        assert response.status_code in (500, 503) and time.monotonic() < end, response.text
    assert "retry-after" in response.headers
    assert "ascend:0" in response.text
    ready = httpx.get(server.url + "/ready", trust_env=False)
    assert ready.status_code == 503 and "ascend:0" in ready.text
    assert httpx.get(server.url + "/health", trust_env=False).status_code == 200


def test_a_spare_takes_the_place_of_a_retired_device(ascend, undisturbed):
    server = ascend("--enforce-eager")
    assert all_streams(server) == undisturbed
    arm(server, "device=0 operator=any code=507053 times=always")
    assert all_streams(server) == undisturbed, server.log()
    assert "ascend:1" in server.log()


def test_a_graph_that_computes_wrong_is_caught_by_the_canary(ascend):
    server = ascend("--verify-replay", "1", "--compilation-config", '{"cudagraph_mode": "FULL_DECODE_ONLY"}')
    assert len(all_streams(server)) == STREAMS
    arm(server, "phase=replay operator=aclnnMm nth=1 corrupt times=always")
    complete(server, 0)
    assert server.metric("updraft_graph_checks_total", result="different") >= 1, server.log()


def children(server):
    every = set()
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        # A thread may end between being listed and being looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            every |= {int(pid) for pid in (task / "children").read_text().split()}
    return sorted(every)


@pytest.mark.parametrize("device", ["ascend", "cpu"])
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_child_that_dies_or_stops_is_replaced(ascend, undisturbed, blow, device):
    for _ in range(RUNS):
        server = ascend("--executor-isolation", "process", "--device", device)
        # The CPU is so fast that short streams would be over before the blow.
        options = {} if device == "ascend" else {"max_tokens": 400}
        expected = undisturbed if device == "ascend" else all_streams(server, **options)
        with streams_running(server, **options) as results:
            before = children(server)
            assert len(before) == 1, before
            os.kill(before[0], blow)
            started = time.monotonic()
            while children(server) == before:
                assert time.monotonic() < started + DETECTED_SECONDS_MAX, server.log()
                time.sleep(0.02)
        taken = time.monotonic() - started
        assert results == expected, server.log()
        recovered(server)
        print(f"{device} {blow.name}: all streams ended {taken:.2f} s after it")
        assert server.stop() == 0, server.log()


# One fault for each thing that is done about one, from the mildest to a new process.
DEMO_FAULTS = {
    "--no-enforce-eager": {"drop_graph": "phase=replay operator=aclnnMm nth=100 code=507009"},
    "--enforce-eager": {
        "retry_in_place": "phase=eager operator=aclnnMm nth=100 code=507002",
        "rebuild_stream": "phase=eager operator=aclnnMm nth=100 code=507015",
        "rebuild_group": "phase=eager operator=aclnnMm nth=100 code=507013",
        "restart_process": "phase=eager operator=aclnnMm nth=100 code=507899",
    },
}


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("graphs", DEMO_FAULTS)
def test_the_demo_model_goes_on_after_every_kind_of_recovery(ascend, model, graphs, isolation):
    def streams(server):
        """Short ones, since the simulation computes a large model slowly."""
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            return list(pool.map(lambda at: complete(server, at, prompt=[99 + 7 * at, 20], max_tokens=3), range(STREAMS)))

    room = ["--max-model-len", "256", "--step-deadline", "30", "--executor-isolation", isolation]
    expected = None
    for _ in range(RUNS):
        server = ascend(graphs, *room, model=model)
        expected = expected or streams(server)
        for action, fault in DEMO_FAULTS[graphs].items():
            before = server.metric("updraft_device_recoveries_total", action=action)
            arm(server, fault)
            assert streams(server) == expected, f"{action}\n{server.log()}"
            # Unpacking its weights takes the time. A drill runs on a quiet machine, a test anywhere.
            recovered(server, in_time=RUNS > 1)
            assert server.metric("updraft_device_recoveries_total", action=action) > before, server.log()
        assert server.stop() == 0, server.log()
