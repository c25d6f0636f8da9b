"""Start, refusals before the port opens, and the ways to stop."""

import concurrent.futures
import signal
import socket
import subprocess
import time

import httpx

from conftest import BINARY, MODEL_NAME, ROOT, free_port

LONG = {
    "model": MODEL_NAME,
    "messages": [{"role": "user", "content": "Count from one to a thousand."}],
    "ignore_eos": True,
    "temperature": 0,
}


def run(*arguments, **options):
    options = {"capture_output": True, "text": True, "timeout": 60} | options
    return subprocess.run([BINARY, *map(str, arguments)], **options)


def refusal(*arguments, code):
    """Runs a command that must fail at once, and gives its one message."""
    done = run(*arguments)
    assert done.returncode == code, done
    lines = done.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert not any(word in done.stderr for word in ("panicked", "backtrace", ".rs:")), done.stderr
    return errors[0]


def test_version_and_help():
    version = run("--version")
    assert version.returncode == 0 and version.stdout.startswith("updraft 0.")
    for arguments in (["--help"], ["serve", "--help"], ["chat", "--help"]):
        help_text = run(*arguments)
        assert help_text.returncode == 0 and "Examples:" in help_text.stdout, arguments


def test_nothing_starts_without_a_sound_configuration(model, tmp_path):
    assert "no model given" in refusal("serve", code=2)
    assert "did you mean --max-model-len?" in refusal("serve", model, "--max-modal-len", "5", code=2)
    file = tmp_path / "bad.yaml"
    file.write_text("model: x\nprot: 8000\n")
    assert "did you mean port?" in refusal("serve", "--config", file, code=2)
    assert "/no/such/folder" in refusal("serve", "/no/such/folder", code=1)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model.read_bytes()[:1_000_000])
    assert "broken.gguf" in refusal("serve", broken, code=1)
    unknown = tmp_path / "folder"
    unknown.mkdir()
    (unknown / "config.json").write_text('{"architectures": ["MambaForCausalLM"]}')
    message = refusal("serve", unknown, code=1)
    assert "MambaForCausalLM" in message and "LlamaForCausalLM" in message


def test_a_taken_port_is_named(model):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        message = refusal("serve", model, "--host", "127.0.0.1", "--port", port, code=1)
    assert str(port) in message


def test_the_line_of_an_ascend_server_serves_on_the_cpu(start):
    line = (
        "--quantization ascend --tensor-parallel-size 8 --max-model-len 2048 --gpu-memory-utilization 0.9 "
        "--block-size 128 --enable-prefix-caching --disable-log-requests"
    )
    server = start(*line.split())
    warnings = [line for line in server.log().splitlines() if "has no effect on the CPU" in line]
    assert len(warnings) == 3, server.log()
    with server.http() as http:
        assert http.get("/v1/models").json()["data"][0]["max_model_len"] == 2048
    assert 'block_size="128"' in httpx.get(server.url + "/metrics", trust_env=False).text


def test_a_file_and_the_environment_configure(start, tmp_path):
    file = tmp_path / "serve.toml"
    file.write_text('served_model_name = "from-file"\nmax-model-len = 512\nseed = 3\n')
    server = start("--config", str(file), name=False, environment={"UPDRAFT_MAX_MODEL_LEN": "1k"})
    with server.http() as http:
        card = http.get("/v1/models").json()["data"][0]
    assert (card["id"], card["max_model_len"]) == ("from-file", 1000)


def test_start_up_prints_what_one_needs_to_know(server):
    log = server.log()
    for word in ("weights", "KV cache", "tokens", "concurrency", server.url):
        assert word in log, f"{word!r} is missing in:\n{log}"


def test_sigterm_lets_requests_finish_and_refuses_new_ones(start):
    server = start("--shutdown-timeout", "60")
    with concurrent.futures.ThreadPoolExecutor(2) as pool, server.http() as http:
        running = pool.submit(http.post, "/v1/chat/completions", json=LONG | {"max_tokens": 150})
        server.wait_for_metric("vllm:num_requests_running", lambda count: count == 1)
        server.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 10
        while True:
            try:
                if httpx.get(server.url + "/ready", timeout=2, trust_env=False).status_code == 503:
                    break
            except httpx.TransportError:
                break
            assert time.monotonic() < end, "still ready after SIGTERM"
            time.sleep(0.02)
        done = running.result()
    assert done.status_code == 200
    assert done.json()["usage"]["completion_tokens"] == 150
    assert server.process.wait(30) == 0
    assert "panicked at" not in server.log()


def test_the_timeout_ends_what_does_not_finish(start):
    server = start("--shutdown-timeout", "0.2")
    with concurrent.futures.ThreadPoolExecutor(2) as pool, server.http() as http:
        running = pool.submit(http.post, "/v1/chat/completions", json=LONG | {"max_tokens": 1900})
        server.wait_for_metric("vllm:num_requests_running", lambda count: count == 1)
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 15
        try:
            assert running.result().status_code != 200
        except httpx.TransportError:
            pass


def test_a_second_signal_stops_at_once(start):
    server = start("--shutdown-timeout", "300")
    with concurrent.futures.ThreadPoolExecutor(2) as pool, server.http() as http:
        running = pool.submit(http.post, "/v1/chat/completions", json=LONG | {"max_tokens": 1900})
        server.wait_for_metric("vllm:num_requests_running", lambda count: count == 1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None, "the first one drains"
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) != 0
        try:
            running.result()
        except httpx.TransportError:
            pass


def test_ctrl_c_stops_an_idle_server_at_once(start):
    server = start("--shutdown-timeout", "300")
    started = time.monotonic()
    assert server.stop(signal.SIGINT) == 0
    assert time.monotonic() - started < 10


def test_chat_talks_to_it(server):
    done = run("chat", "--url", server.url, "--temperature", "0", "--max-tokens", "12", input="Say hello.\n")
    assert done.returncode == 0, done.stderr
    with server.http() as http:
        request = {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0, "max_tokens": 12}
        expected = http.post("/v1/chat/completions", json=request).json()
    assert done.stdout == expected["choices"][0]["message"]["content"] + "\n"

    nobody = run("chat", "--url", f"http://127.0.0.1:{free_port()}", "hello")
    assert nobody.returncode == 1 and "no server answers" in nobody.stderr


def test_the_example_configuration_is_good(start, model, tmp_path):
    text = (ROOT / "config/updraft.toml").read_text()
    file = tmp_path / "updraft.toml"
    file.write_text(text.replace('model = "SmolLM2-135M-Instruct.Q4_1.gguf"', f'model = "{model}"'))
    server = start("--config", str(file), "--kv-cache-memory-bytes", "256m")
    with server.http() as http:
        assert http.get("/health").status_code == 200
