//! Where CANN is looked for.
//!
//! Always holds: all libraries come out of one installation, the first one that is complete; libraries of two releases
//! are never mixed. A folder that somebody named is the only one that is looked at.
//!
//! Refuses to know: how libraries are opened.

use std::path::{Path, PathBuf};

use super::LibraryError;

/// Where releases from 8.5 on install themselves, and older ones.
const INSTALL_FOLDERS: [&str; 2] = ["/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest"];
/// Libraries of the runtime, by release.
pub(super) const RUNTIME: [&str; 2] = ["libascendcl.so", "libacl_rt.so"];
/// The library of operator calls.
pub(super) const BASE: [&str; 1] = ["libnnopbase.so"];
/// The undivided library of operators.
pub(super) const OPERATORS: &str = "libopapi.so";
/// What the names of its parts begin with where it is split by domain.
const SPLIT_OPERATORS: &str = "libopapi_";

/// Folders of installations, in order; the loader's own search comes last, unless a folder was named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchPath {
    roots: Vec<PathBuf>,
    /// Whether the loader may search where it likes.
    loader: bool,
    custom: Vec<PathBuf>,
}

/// Where all libraries come from.
#[derive(Debug)]
pub(super) struct Installation {
    /// Its folders; none when the loader searches.
    folders: Vec<PathBuf>,
    custom: Vec<PathBuf>,
    /// What the folders that were looked at before lack.
    pub(super) passed_over: Vec<String>,
}

impl SearchPath {
    /// An explicit folder alone; without one, what the environment names, the usual places, and the loader's own search.
    #[must_use]
    pub fn from_environment(explicit: Option<&Path>) -> Self {
        Self::new(explicit, &|name| std::env::var_os(name).map(PathBuf::from))
    }

    /// The same with an environment of the caller's choice.
    #[must_use]
    pub fn new(explicit: Option<&Path>, variable: &dyn Fn(&str) -> Option<PathBuf>) -> Self {
        if let Some(folder) = explicit {
            let listed = variable("ASCEND_CUSTOM_OPP_PATH");
            let custom = custom(listed.as_deref(), Some(&folder.join("opp")));
            return Self { custom, ..Self::only(folder) };
        }
        let named = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].map(variable).into_iter().flatten();
        let mut roots = Vec::new();
        for root in named.chain(INSTALL_FOLDERS.map(PathBuf::from)) {
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        let [listed, operators] = ["ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH"].map(variable);
        let custom = custom(listed.as_deref(), operators.as_deref());
        Self { roots, loader: true, custom }
    }

    /// Only this folder: nothing else is tried, not even the loader's own search.
    #[must_use]
    pub fn only(folder: &Path) -> Self {
        Self { roots: vec![folder.to_owned()], loader: false, custom: Vec::new() }
    }

    /// The folders of the installations, in order; without [`SearchPath::only`] or an explicit folder, the loader's own
    /// search comes behind them.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        self.roots.iter().flat_map(|root| folders(root)).collect()
    }

    /// The first complete installation, by its files.
    pub(super) fn installation(&self) -> Result<Installation, LibraryError> {
        let mut passed_over = Vec::new();
        let mut first_missing = None;
        for root in &self.roots {
            let folders = folders(root);
            let lacks = lacks(&folders);
            let custom = self.custom.clone();
            if lacks.is_empty() {
                return Ok(Installation { folders, custom, passed_over });
            }
            first_missing = first_missing.or(lacks.first().map(|(group, _)| *group));
            let names: Vec<_> = lacks.iter().map(|(_, names)| names.as_str()).collect();
            passed_over.push(format!("{}, which lacks {}", root.display(), names.join(" and ")));
        }
        if self.loader {
            return Ok(Installation { folders: Vec::new(), custom: self.custom.clone(), passed_over });
        }
        Err(LibraryError::Open { group: first_missing.unwrap_or("runtime"), tried: passed_over })
    }
}

impl Installation {
    /// Paths under which a library may lie.
    pub(super) fn candidates(&self, name: &str) -> Vec<PathBuf> {
        if self.folders.is_empty() {
            return vec![PathBuf::from(name)];
        }
        let paths = self.folders.iter().map(|folder| folder.join(name));
        paths.filter(|path| path.exists()).collect()
    }

    /// Libraries of operators that users have built.
    pub(super) fn custom_operators(&self) -> &[PathBuf] {
        &self.custom
    }

    /// The libraries of operators, split by domain; the old ones last.
    pub(super) fn split_operators(&self) -> Vec<PathBuf> {
        split_in(&self.folders)
    }
}

/// Where an installation has its libraries.
fn folders(root: &Path) -> Vec<PathBuf> {
    vec![root.join("lib64"), root.to_owned()]
}

/// The groups of libraries that these folders have none of, with the names that there could be.
fn lacks(folders: &[PathBuf]) -> Vec<(&'static str, String)> {
    let has =
        |names: &[&str]| names.iter().any(|name| folders.iter().any(|folder| folder.join(name).exists()));
    let mut lacks = Vec::new();
    if !has(&RUNTIME) {
        lacks.push(("runtime", RUNTIME.join(" or ")));
    }
    if !has(&BASE) {
        lacks.push(("operator base", BASE.join(" or ")));
    }
    if !has(&[OPERATORS]) && split_in(folders).is_empty() {
        lacks.push(("operator", format!("{OPERATORS} or {SPLIT_OPERATORS}*.so")));
    }
    lacks
}

fn split_in(folders: &[PathBuf]) -> Vec<PathBuf> {
    let is_split = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix(SPLIT_OPERATORS).is_some_and(|rest| rest.strip_suffix(".so").is_some())
    };
    let split = |folder: &PathBuf| {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).filter(is_split).collect();
        paths.sort_by_key(|path| (path.ends_with("libopapi_legacy.so"), path.clone()));
        paths
    };
    folders.iter().map(split).find(|paths| !paths.is_empty()).unwrap_or_default()
}

/// Libraries in the folders that a list names, and in those of the vendors of an installation's operators.
fn custom(listed: Option<&Path>, operators: Option<&Path>) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = listed.into_iter().flat_map(std::env::split_paths).collect();
    if let Some(operators) = operators {
        let vendors = operators.join("vendors").read_dir().into_iter().flatten().flatten();
        let mut vendors: Vec<_> = vendors.map(|entry| entry.path()).collect();
        vendors.sort();
        roots.extend(vendors);
    }
    let libraries = roots.into_iter().map(|root| root.join("op_api/lib/libcust_opapi.so"));
    libraries.filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_folder_is_the_only_one() {
        let variable = |name: &str| (name == "ASCEND_HOME_PATH").then(|| PathBuf::from("/home"));
        let search = SearchPath::new(Some(Path::new("/mine")), &variable);
        assert_eq!(search.folders(), [PathBuf::from("/mine/lib64"), PathBuf::from("/mine")]);
        let Err(LibraryError::Open { group: "runtime", tried }) = search.installation() else {
            panic!("found in {search:?}")
        };
        assert_eq!(tried.len(), 1, "{tried:?}");
    }

    #[test]
    fn the_environment_comes_before_the_usual_places_and_the_loader_last() {
        let variable = |name: &str| (name == "ASCEND_HOME_PATH").then(|| PathBuf::from("/nowhere"));
        let search = SearchPath::new(None, &variable);
        let first: Vec<_> = search.folders().into_iter().take(3).collect();
        assert_eq!(first, ["/nowhere/lib64", "/nowhere", "/usr/local/Ascend/cann/lib64"].map(PathBuf::from));
        let only = |folders: &[PathBuf]| folders.iter().all(|folder| !folder.starts_with("/nowhere"));
        let found = search.installation().unwrap();
        assert!(only(&found.folders) && found.passed_over[0].contains("/nowhere"), "{found:?}");
    }

    #[test]
    fn one_folder_alone_keeps_the_loader_out() {
        assert!(SearchPath::only(Path::new("/nowhere")).installation().is_err());
    }
}
