//! Where CANN is looked for.

use std::path::{Path, PathBuf};

/// Where releases from 8.5 on install themselves, and older ones.
const INSTALL_FOLDERS: [&str; 2] = ["/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest"];

/// Folders of installations, in order; the loader's own search comes last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchPath {
    folders: Vec<PathBuf>,
    custom: Vec<PathBuf>,
}

impl SearchPath {
    /// An explicit folder (if any), what the environment names, the usual places.
    #[must_use]
    pub fn from_environment(explicit: Option<&Path>) -> Self {
        Self::new(explicit, &|name| std::env::var_os(name).map(PathBuf::from))
    }

    /// The same with an environment of the caller's choice.
    #[must_use]
    pub fn new(explicit: Option<&Path>, variable: &dyn Fn(&str) -> Option<PathBuf>) -> Self {
        let named = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].map(variable).into_iter().flatten();
        let usual = INSTALL_FOLDERS.map(PathBuf::from);
        let roots = explicit.map(Path::to_owned).into_iter().chain(named).chain(usual);
        let mut folders = Vec::new();
        for root in roots {
            for folder in [root.join("lib64"), root] {
                if !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
        }
        Self { folders, custom: custom(variable) }
    }

    /// Only this folder: nothing else is tried, not even the loader's own search.
    #[must_use]
    pub fn only(folder: &Path) -> Self {
        Self { folders: vec![folder.join("lib64"), folder.to_owned()], custom: Vec::new() }
    }

    /// The folders, in order; without [`SearchPath::only`], the loader's own search comes behind them.
    #[must_use]
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Paths under which a library may lie.
    pub(super) fn candidates(&self, name: &str) -> Vec<PathBuf> {
        let mut paths: Vec<_> = self.folders.iter().map(|folder| folder.join(name)).collect();
        paths.retain(|path| path.exists());
        if self.folders.len() > 2 {
            paths.push(PathBuf::from(name));
        }
        paths
    }

    /// Libraries of operators that users have built.
    pub(super) fn custom_operators(&self) -> &[PathBuf] {
        &self.custom
    }

    /// The libraries of operators, split by domain, of the first installation that has some; the old ones last.
    pub(super) fn split_operators(&self) -> Vec<PathBuf> {
        let found = self.folders.iter().map(|folder| split_in(folder)).find(|paths| !paths.is_empty());
        found.unwrap_or_default()
    }
}

fn split_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let is_split = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("libopapi_").is_some_and(|rest| rest.strip_suffix(".so").is_some())
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_split).collect();
    paths.sort_by_key(|path| (path.ends_with("libopapi_legacy.so"), path.clone()));
    paths
}

fn custom(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let listed = variable("ASCEND_CUSTOM_OPP_PATH");
    let mut roots: Vec<PathBuf> = listed.iter().flat_map(std::env::split_paths).collect();
    if let Some(opp) = variable("ASCEND_OPP_PATH") {
        let vendors = opp.join("vendors").read_dir().into_iter().flatten().flatten();
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
    fn an_explicit_folder_comes_before_the_environment_and_the_usual_places() {
        let variable = |name: &str| (name == "ASCEND_HOME_PATH").then(|| PathBuf::from("/home"));
        let search = SearchPath::new(Some(Path::new("/mine")), &variable);
        let first: Vec<_> = search.folders.iter().take(5).map(|path| path.display().to_string()).collect();
        assert_eq!(first, ["/mine/lib64", "/mine", "/home/lib64", "/home", "/usr/local/Ascend/cann/lib64"]);
    }

    #[test]
    fn one_folder_alone_keeps_the_loader_out() {
        assert!(SearchPath::only(Path::new("/nowhere")).candidates("libascendcl.so").is_empty());
    }
}
