//! Routes, methods, keys and names of requests.

use axum::http::Method;
use updraft_protocol::routes::ROUTES;

use super::*;

fn locked() -> Bench {
    let options = HttpOptions { api_keys: vec!["k1".to_owned(), "k2".to_owned()], ..HttpOptions::default() };
    Bench::with(FakeEngine::new(|submission| Ok(says(submission, SAID))), options)
}

fn request(method: &str, path: &str) -> axum::http::request::Builder {
    Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path)
}

#[tokio::test]
async fn every_route_of_the_table_is_served() {
    let bench = Bench::talking();
    for route in ROUTES {
        let path = route.path.replace("{model}", "tiny");
        let answer = bench.send(request(route.method, &path).body(Body::empty()).unwrap()).await;
        assert!(answer.status != 404 && answer.status != 405, "{route:?}: {}", answer.status);
        assert_eq!(answer.headers["x-request-id"].len(), 32, "{route:?}");
    }
}

#[tokio::test]
async fn the_key_guards_everything_but_four_routes() {
    let bench = locked();
    let open = ["/health", "/ready", "/ping", "/version"];
    for route in ROUTES {
        let path = route.path.replace("{model}", "tiny");
        let answer = bench.send(request(route.method, &path).body(Body::empty()).unwrap()).await;
        if open.contains(&route.path) {
            assert_eq!(answer.status, 200, "{route:?}");
        } else {
            let message = answer.refusal(401);
            assert!(message.contains("Authorization: Bearer") && message.contains("x-api-key"), "{message}");
            assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        }
    }
}

#[tokio::test]
async fn no_spelling_of_a_path_gets_around_the_key() {
    let bench = locked();
    for path in [
        "//v1/models",
        "/v1/models/",
        "/V1/models",
        "/v1//models",
        "/health/../v1/models",
        "/health/",
        "/%68ealth",
        "/v1/models?x=/health",
        "/nothing",
        "/",
        "/metrics",
        "/health%2f..%2fmetrics",
        "/docs",
        "/openapi.json",
    ] {
        assert_eq!(bench.get(path).await.status, 401, "{path}");
    }
    for method in ["OPTIONS", "HEAD", "PUT", "DELETE", "TRACE", "GET"] {
        let answer = bench.send(request(method, "/v1/chat/completions").body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, 401, "{method}");
    }
}

#[tokio::test]
async fn a_right_key_opens_in_each_spelling() {
    let bench = locked();
    for (name, value) in [("authorization", "bearer k2"), ("authorization", "Bearer k1"), ("x-api-key", "k1")]
    {
        let answer =
            bench.send(request("GET", "/v1/models").header(name, value).body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, 200, "{value}");
    }
    let wrong = request("GET", "/v1/models").header("x-api-key", "k3").body(Body::empty()).unwrap();
    assert!(bench.send(wrong).await.refusal(401).contains("not valid"));
}

#[tokio::test]
async fn unknown_paths_and_methods_say_what_there_is() {
    let bench = Bench::talking();
    let message = bench.post("/v1/nothing-here", &json!({})).await.refusal(404);
    assert!(message.contains("POST /v1/chat/completions"), "{message}");
    let message = bench.post("/chat/completions", &json!({})).await.refusal(404);
    assert!(message.contains("did you mean POST /v1/chat/completions?"), "{message}");
    let answer = bench.get("/v1/chat/completions").await;
    answer.refusal(405);
    assert_eq!(answer.headers["allow"], "POST");
    let answer = bench.send(request("DELETE", "/v1/models/tiny").body(Body::empty()).unwrap()).await;
    answer.refusal(405);
    assert_eq!(answer.headers["allow"], "GET");
}

#[tokio::test]
async fn a_request_keeps_its_name() {
    let bench = Bench::talking();
    let mut named = post("/v1/chat/completions", &chat_body(json!({"request_id": "from-body"})));
    named.headers_mut().insert("x-request-id", "from-header".parse().unwrap());
    let answer = bench.send(named).await;
    assert_eq!(answer.headers["x-request-id"], "from-header");
    assert_eq!(answer.json()["id"], "chatcmpl-from-header");
    assert_eq!(bench.chat(json!({"request_id": "from-body"})).await.json()["id"], "chatcmpl-from-body");
    let mut odd = post("/v1/nothing", &json!({}));
    odd.headers_mut().insert("x-request-id", "a b\tc".parse().unwrap());
    assert_eq!(bench.send(odd).await.headers["x-request-id"].len(), 32);
}

#[tokio::test]
async fn models_are_listed_and_described() {
    let bench = Bench::talking();
    let list = bench.get("/v1/models").await.json();
    assert_eq!(list["object"], "list");
    assert_eq!((&list["data"][0]["id"], &list["data"][1]["id"]), (&json!("tiny"), &json!("other")));
    assert_eq!(list["data"][0]["max_model_len"], MAX_MODEL_LEN);
    assert_eq!(bench.get("/v1/models/other").await.json()["id"], "other");
    assert!(bench.get("/v1/models/org/name").await.refusal(404).contains("org/name"));
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere() {
    let bench = Bench::talking();
    let page = bench.get("/docs").await;
    assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(!page.text.contains("http://") && !page.text.contains("https://"));
    assert!(bench.get("/openapi.json").await.json()["paths"]["/v1/completions"]["post"].is_object());
    let quiet = HttpOptions { docs: false, ..HttpOptions::default() };
    let bench = Bench::with(FakeEngine::new(|_| Ok(Vec::new())), quiet);
    bench.get("/docs").await.refusal(404);
}

#[tokio::test]
async fn browsers_of_listed_origins_may_call() {
    let options = HttpOptions {
        api_keys: vec!["k".to_owned()],
        allowed_origins: vec!["http://app.example".to_owned()],
        ..HttpOptions::default()
    };
    let bench = Bench::with(FakeEngine::new(|_| Ok(Vec::new())), options);
    let preflight = |origin: &str| {
        let request = request("OPTIONS", "/v1/chat/completions").header("origin", origin);
        request.header("access-control-request-method", "POST").body(Body::empty()).unwrap()
    };
    let answer = bench.send(preflight("http://app.example")).await;
    assert_eq!(answer.headers["access-control-allow-origin"], "http://app.example");
    assert!(
        !bench
            .send(preflight("http://evil.example"))
            .await
            .headers
            .contains_key("access-control-allow-origin")
    );
}
