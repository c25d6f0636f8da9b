//! Fetches a checkpoint from a model hub into a cache folder.
//!
//! The layout of the cache is the hub's own, so that what other programs have fetched is found. A complete
//! checkpoint in the cache is used when the hub cannot be reached.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};

use crate::error::CheckpointError;
use crate::safetensors::{INDEX_FILE, SINGLE_FILE};

/// Set to anything but 0, the hub is not asked.
const OFFLINE_VARIABLE: &str = "HF_HUB_OFFLINE";
const TOKEN_VARIABLE: &str = "HF_TOKEN";
const ENDPOINT_VARIABLE: &str = "HF_ENDPOINT";
const DEFAULT_REVISION: &str = "main";
/// Endings of files beside the weights that are part of a checkpoint.
const SIDE_ENDINGS: [&str; 2] = [".json", ".jinja"];
const GGUF_ENDING: &str = ".gguf";
const HELP: &str = "give a folder or a .gguf file that lies on this machine, set HF_HOME to a cache that has the model, or \
                    set HF_ENDPOINT to a mirror that can be reached";

/// The name of a model on a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubId {
    /// Owner and name, `org/name`.
    pub repository: String,
    /// Branch, tag or commit.
    pub revision: String,
}

impl HubId {
    /// Understands `org/name` and `org/name@revision`; `None` for anything that is more likely a path.
    #[must_use]
    pub fn parse(text: &str, default_revision: Option<&str>) -> Option<Self> {
        let (repository, revision) = match text.split_once('@') {
            Some((repository, revision)) => (repository, revision),
            None => (text, default_revision.unwrap_or(DEFAULT_REVISION)),
        };
        let (owner, name) = repository.split_once('/')?;
        let plain = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_alphanumeric())
                && part.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
                && !part.contains("..")
        };
        let sane_revision = !revision.is_empty() && revision.split('/').all(plain);
        let looks_like_file = [".gguf", ".safetensors", ".json"].iter().any(|ending| name.ends_with(ending));
        (plain(owner) && plain(name) && sane_revision && !looks_like_file)
            .then(|| Self { repository: repository.to_owned(), revision: revision.to_owned() })
    }

    fn repo(&self) -> Repo {
        Repo::with_revision(self.repository.clone(), RepoType::Model, self.revision.clone())
    }
}

impl std::fmt::Display for HubId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.repository, self.revision)
    }
}

/// Fetches what is not in the cache yet; gives the folder, or the file of a repository with one GGUF file.
pub(crate) fn fetch(id: &HubId, download_dir: Option<&Path>) -> Result<PathBuf, CheckpointError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let hub = Hub {
        cache: match download_dir {
            Some(dir) => Some(Cache::new(std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()))),
            None => cache_of_user(),
        },
        endpoint: variable(ENDPOINT_VARIABLE),
        offline: variable(OFFLINE_VARIABLE).is_some_and(|value| value != "0"),
        token: variable(TOKEN_VARIABLE),
        show_progress: true,
    };
    hub.fetch(id)
}

/// The usual cache, unless the user has no home folder to put it in.
fn cache_of_user() -> Option<Cache> {
    let known = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    (known("HF_HOME") || known("HOME")).then(Cache::from_env)
}

struct Hub {
    cache: Option<Cache>,
    /// None is the hub that the `hf-hub` crate knows.
    endpoint: Option<String>,
    offline: bool,
    /// For models that are not public; absent: the one that the cache's folder keeps.
    token: Option<String>,
    show_progress: bool,
}

impl Hub {
    fn fetch(&self, id: &HubId) -> Result<PathBuf, CheckpointError> {
        let Some(cache) = &self.cache else {
            return Err(self.error(id, "there is no folder to keep it in".to_owned()));
        };
        if self.offline {
            return cached(cache, id).ok_or_else(|| {
                self.error(id, format!("{OFFLINE_VARIABLE} is set, and the cache does not have it"))
            });
        }
        match self.download(cache, id) {
            Ok(path) => Ok(path),
            Err(Failure::Hub(error)) => match cached(cache, id) {
                // Not reached: what was fetched before is as good. An answer such as "no such model" counts.
                Some(path) if !answered(&error) => Ok(path),
                _ => Err(self.error(id, explain(&error))),
            },
            Err(Failure::Content(reason)) => Err(self.error(id, reason)),
        }
    }

    /// All files come from the commit that the revision stands for now; the revision's entry in the cache is moved to
    /// it only when the last file is there.
    fn download(&self, cache: &Cache, id: &HubId) -> Result<PathBuf, Failure> {
        let mut api = ApiBuilder::from_cache(cache.clone())
            .with_progress(self.show_progress)
            .with_token(self.token.clone().or_else(|| cache.token()));
        if let Some(endpoint) = &self.endpoint {
            api = api.with_endpoint(endpoint.clone());
        }
        let api: Api = api.build()?;
        let info = api.repo(id.repo()).info()?;
        if info.sha.is_empty() || !info.sha.chars().all(|letter| letter.is_ascii_alphanumeric()) {
            return Err(Failure::Content(format!("it answers with `{}`, which is no commit", info.sha)));
        }
        let names: Vec<String> = info.siblings.into_iter().map(|file| file.rfilename).collect();
        let wanted = choose(&names).map_err(Failure::Content)?;
        let commit = HubId { repository: id.repository.clone(), revision: info.sha };
        let snapshot = snapshot_folder(cache, &commit);
        let repo = api.repo(commit.repo());
        for name in &wanted.files {
            if !snapshot.join(name).exists() {
                repo.download(name)?;
            }
        }
        cache.repo(id.repo()).create_ref(&commit.revision).map_err(ApiError::from)?;
        Ok(wanted.within(&snapshot))
    }

    fn error(&self, id: &HubId, reason: String) -> CheckpointError {
        CheckpointError::Hub {
            id: id.to_string(),
            endpoint: self.endpoint.clone().unwrap_or_else(|| "its usual address".to_owned()),
            reason,
            help: HELP,
        }
    }
}

enum Failure {
    Hub(ApiError),
    Content(String),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Hub(error)
    }
}

/// The files of a repository that make up its checkpoint.
#[derive(Debug, PartialEq)]
struct Wanted {
    files: Vec<String>,
    /// Whether the checkpoint is the one file, not the folder.
    is_one_file: bool,
}

impl Wanted {
    /// The checkpoint's path when its files are in `folder`.
    fn within(&self, folder: &Path) -> PathBuf {
        match self.files.first() {
            Some(file) if self.is_one_file => folder.join(file),
            _ => folder.to_owned(),
        }
    }
}

fn choose(names: &[String]) -> Result<Wanted, String> {
    let at_top = || names.iter().filter(|name| !name.contains('/'));
    if names.iter().any(|name| name == SINGLE_FILE || name == INDEX_FILE) {
        let single = names.iter().any(|name| name == SINGLE_FILE);
        let is_weights = |name: &str| {
            if single {
                name == SINGLE_FILE
            } else {
                name.starts_with("model-") && name.ends_with(".safetensors")
            }
        };
        let is_side = |name: &str| SIDE_ENDINGS.iter().any(|ending| name.ends_with(ending));
        let files = at_top().filter(|name| is_weights(name) || is_side(name)).cloned().collect();
        return Ok(Wanted { files, is_one_file: false });
    }
    let gguf: Vec<&String> = at_top().filter(|name| name.ends_with(GGUF_ENDING)).collect();
    match gguf.as_slice() {
        [one] => Ok(Wanted { files: vec![(*one).clone()], is_one_file: true }),
        [] => Err(format!("the repository has neither {SINGLE_FILE} nor {INDEX_FILE} nor a .gguf file")),
        several => Err(format!(
            "the repository has {} .gguf files ({}, …); fetch one and give its path",
            several.len(),
            several.iter().take(3).map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// A checkpoint that an earlier run, or another program, has fetched. Whether it is complete is found when it is
/// opened.
fn cached(cache: &Cache, id: &HubId) -> Option<PathBuf> {
    let reference = cache.path().join(id.repo().folder_name()).join("refs").join(&id.revision);
    let commit = std::fs::read_to_string(reference).map(|text| text.trim().to_owned());
    let commit = HubId { repository: id.repository.clone(), revision: commit.unwrap_or(id.revision.clone()) };
    let snapshot = snapshot_folder(cache, &commit);
    let entries = std::fs::read_dir(&snapshot).ok()?;
    let names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    choose(&names).ok().map(|found| found.within(&snapshot))
}

/// Where the cache has the files of a commit.
fn snapshot_folder(cache: &Cache, commit: &HubId) -> PathBuf {
    cache.path().join(commit.repo().folder_name()).join("snapshots").join(&commit.revision)
}

/// Whether the hub gave an answer, if only an unwelcome one.
fn answered(error: &ApiError) -> bool {
    matches!(error, ApiError::RequestError(inner) if inner.to_string().contains("status code"))
}

/// Says what an error of the hub means.
fn explain(error: &ApiError) -> String {
    let text = error.to_string();
    let code = |number: &str| text.contains(&format!("status code {number}"));
    if code("401") || code("403") {
        return format!(
            "the hub refuses access ({text}): the model is not public, does not exist, or its terms must be accepted; \
             set {TOKEN_VARIABLE} to a token that may read it"
        );
    }
    if code("404") {
        return format!("the hub does not have it, or not at this revision ({text})");
    }
    text
}
