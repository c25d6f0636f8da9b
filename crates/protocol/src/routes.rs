//! The routes there are: one table for the router, the error that lists them, and the API page.

/// One method on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The path; `{model}` stands for anything.
    pub path: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Whether it answers without an API key.
    pub open: bool,
}

const fn guarded(method: &'static str, path: &'static str, summary: &'static str) -> Route {
    Route { method, path, summary, open: false }
}

const fn open(method: &'static str, path: &'static str, summary: &'static str) -> Route {
    Route { method, path, summary, open: true }
}

/// Every route, in the order people look for them.
pub const ROUTES: &[Route] = &[
    guarded("POST", "/v1/chat/completions", "Answer a conversation"),
    guarded("POST", "/v1/completions", "Continue a text or token ids"),
    guarded("GET", "/v1/models", "List the models"),
    guarded("GET", "/v1/models/{model}", "Describe one model"),
    guarded("POST", "/tokenize", "Turn text or a conversation into tokens"),
    guarded("POST", "/detokenize", "Turn tokens into text"),
    open("GET", "/health", "Whether the process is alive"),
    open("GET", "/ready", "Whether requests are served now, and why not"),
    open("GET", "/ping", "Whether the process is alive"),
    open("POST", "/ping", "Whether the process is alive"),
    open("GET", "/version", "Version of the server"),
    guarded("GET", "/load", "Requests in the house"),
    guarded("GET", "/metrics", "Measurements for Prometheus"),
    guarded("GET", "/openapi.json", "Description of this API"),
    guarded("GET", "/docs", "This API as a page"),
];

/// Whether this exact path answers without an API key.
#[must_use]
pub fn is_open(path: &str) -> bool {
    ROUTES.iter().any(|route| route.open && route.path == path)
}

/// The routes in one line, for messages.
#[must_use]
pub fn listed() -> String {
    ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect::<Vec<_>>().join(", ")
}

/// The route whose path ends like `path` or looks most like it.
#[must_use]
pub fn nearest(path: &str) -> Option<&'static Route> {
    const ALIKE_MIN: f64 = 0.75;
    let path = path.trim_end_matches('/');
    // Base URLs with a missing or doubled `/v1` are the usual slip.
    let tail = path.trim_start_matches("/v1").trim_start_matches("/v1");
    let by_tail = ROUTES.iter().find(|route| {
        let known = route.path.trim_start_matches("/v1");
        tail.len() > 1 && known.eq_ignore_ascii_case(tail)
    });
    by_tail.or_else(|| {
        ROUTES
            .iter()
            .map(|route| (strsim::normalized_levenshtein(path, route.path), route))
            .filter(|(alike, _)| *alike >= ALIKE_MIN)
            .max_by(|left, right| left.0.total_cmp(&right.0))
            .map(|(_, route)| route)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_path_is_open() {
        assert!(is_open("/health") && is_open("/ready") && is_open("/ping") && is_open("/version"));
        for path in ["//health", "/health/", "/Health", "/health/../v1/models", "/v1/models", "/metrics", "/"]
        {
            assert!(!is_open(path), "{path}");
        }
    }

    #[test]
    fn a_slip_in_the_path_is_seen() {
        let near = |path| nearest(path).map(|route| route.path);
        assert_eq!(near("/chat/completions"), Some("/v1/chat/completions"));
        assert_eq!(near("/v1/v1/chat/completions"), Some("/v1/chat/completions"));
        assert_eq!(near("/v1/chat/completion"), Some("/v1/chat/completions"));
        assert_eq!(near("/v1/models/"), Some("/v1/models"));
        assert_eq!(near("/"), None);
        assert_eq!(near("/v1/nothing-here"), None);
    }
}
