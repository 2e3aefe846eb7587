//! The path to a file: each name on it, including those behind links. Replacing one of them replaces the file.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The most names on a way, which the kernel bounds likewise: links may lead in a circle.
const MAX_NAMES: usize = 128;

/// Returns the path of each name on the way to a file, without links in it. It ends where something is missing.
pub(crate) fn trail(path: &Path) -> Vec<PathBuf> {
    let Ok(path) = std::path::absolute(path) else { return Vec::new() };
    let parts = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect::<Vec<OsString>>();
    let mut left: VecDeque<OsString> = parts(&path).into();
    let (mut at, mut trail) = (PathBuf::from("/"), Vec::new());
    while let Some(part) = left.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) if trail.len() < MAX_NAMES => {
                let next = at.join(name);
                match std::fs::read_link(&next) {
                    Ok(target) => parts(&target).into_iter().rev().for_each(|part| left.push_front(part)),
                    Err(_) => at.clone_from(&next),
                }
                trail.push(next);
            }
            _ => {}
        }
    }
    trail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trail_has_each_name_on_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("v1/deep")).unwrap();
        std::os::unix::fs::symlink("v1", root.join("now")).unwrap();
        std::os::unix::fs::symlink("../../now/deep/real", root.join("v1/deep/link")).unwrap();
        std::fs::write(root.join("v1/deep/real"), "").unwrap();
        let names: Vec<_> = trail(&root.join("now/deep/link"));
        let below = |names: &[PathBuf]| -> Vec<String> {
            names.iter().filter_map(|name| Some(name.strip_prefix(&root).ok()?.display().to_string())).collect()
        };
        let expected = ["", "now", "v1", "v1/deep", "v1/deep/link", "now", "v1", "v1/deep", "v1/deep/real"];
        assert_eq!(below(&names), expected);
        std::os::unix::fs::symlink("circle", root.join("circle")).unwrap();
        assert_eq!(trail(&root.join("circle")).len(), MAX_NAMES);
        assert_eq!(below(&trail(&root.join("missing/file"))), ["", "missing", "missing/file"]);
    }
}
