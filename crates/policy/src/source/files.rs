//! Policies from files and directories.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::document::is_policy;
use crate::{ProblemReport, Source};

/// Maximum bytes of all files together: enough for a million rules, but not for a disk image given
/// by mistake.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Maximum number of files.
const MAX_FILES: usize = 10_000;
/// Maximum depth of directories: ends a symlink that leads back up.
const MAX_DEPTH: usize = 16;
/// Maximum number of directories: bounds the work if there are many such symlinks.
const MAX_FOLDERS: usize = 10_000;

/// Locations of policies, and the filter for files in directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyLocations {
    /// Files, and directories, which are read recursively.
    pub paths: Vec<PathBuf>,
    /// Overlay files with options for rules that are written elsewhere; they come after the others.
    pub overlays: Vec<PathBuf>,
    /// The filter for files in directories.
    pub which: FileFilter,
}

/// A filter for files in directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFilter {
    /// Set to also select files with other names, by their content: a mapping with a `domain` or,
    /// if it is not YAML, a line that begins with `domain:` before any Markdown code block. A
    /// directory without policies is then not an error.
    pub by_content: bool,
    /// Set if names that begin with a dot count.
    pub dot_files: bool,
    /// Prefix of the path below the directory, with `.` in place of `/`.
    pub prefix: String,
    /// Set to select the tests of policies, and not the policies.
    pub tests: bool,
}

/// Reads files, and directories recursively: `*.yaml` and `*.yml`, in sorted order.
///
/// In directories, tests and names that begin with a dot are skipped, unless [`FileFilter`] selects
/// them. Symlinks are followed, and a file that is found under several names counts once. So a
/// Kubernetes ConfigMap, which is a directory of symlinks into `..data`, is read once either way.
///
/// # Errors
/// Returns all files that cannot be read.
pub fn read(places: &PolicyLocations) -> Result<Vec<Source>, ProblemReport> {
    let PolicyLocations { paths, overlays, which } = places;
    let mut reading = FileReading {
        which,
        sources: vec![],
        found: HashSet::new(),
        folders: 0,
        bytes: 0,
        report: ProblemReport::default(),
    };
    paths.iter().for_each(|path| reading.path(path));
    let found_none = reading.sources.is_empty() && reading.report.is_empty() && !which.by_content;
    if found_none && let Some(path) = paths.first() {
        // Not treated as a request to lift all limits: a volume that is not mounted looks like
        // this.
        let wanted = if which.tests { "*.test.yaml or *.test.yml" } else { "*.yaml or *.yml" };
        reading
            .report
            .push_unreadable(&path.display().to_string(), format!("no {wanted} files found"));
    }
    overlays.iter().for_each(|path| reading.path(path));
    if reading.folders > MAX_FOLDERS {
        reading.report.push_unreadable("", format!("more than {MAX_FOLDERS} directories"));
    }
    if reading.report.is_empty() { Ok(reading.sources) } else { Err(reading.report) }
}

/// Reads the files of tests in `paths`: files by name, and `*.test.yaml` and `*.test.yml` in
/// directories, recursively.
///
/// # Errors
/// Returns all files that cannot be read, or an error if there are none.
pub fn tests(paths: &[PathBuf]) -> Result<Vec<Source>, ProblemReport> {
    let which = FileFilter { tests: true, ..FileFilter::default() };
    read(&PolicyLocations { paths: paths.to_owned(), which, ..PolicyLocations::default() })
}

struct FileReading<'w> {
    which: &'w FileFilter,
    sources: Vec<Source>,
    /// Files in directories found so far, by device and inode.
    found: HashSet<(u64, u64)>,
    folders: usize,
    bytes: u64,
    report: ProblemReport,
}

impl FileReading<'_> {
    fn path(&mut self, path: &Path) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.directory(path, path, 1),
            Ok(_) => self.file(path),
            Err(error) => self.fail(path, &error),
        }
    }

    /// Reads a directory. `root`: the directory that was given; `path`: the same, or one below.
    fn directory(&mut self, root: &Path, path: &Path, depth: usize) {
        self.folders = self.folders.saturating_add(1);
        if self.folders > MAX_FOLDERS {
            return;
        }
        if depth > MAX_DEPTH {
            return self
                .refuse(path, format!("directories are nested more than {MAX_DEPTH} levels deep"));
        }
        let children =
            fs::read_dir(path).and_then(|items| items.map(|item| Ok(item?.path())).collect());
        let mut children: Vec<PathBuf> = match children {
            Ok(children) => children,
            Err(error) => return self.fail(path, &error),
        };
        children.sort();
        for child in children.iter().filter(|child| self.which.dot_files || !is_hidden(child)) {
            match fs::metadata(child) {
                Ok(metadata) if metadata.is_dir() => {
                    self.directory(root, child, depth.saturating_add(1))
                }
                Ok(_) if !self.which.is_named(root, child) => {}
                Ok(metadata) if self.has_found(&metadata) => {}
                Ok(metadata) if self.which.has(child) && metadata.is_file() => self.file(child),
                Ok(metadata) if self.which.by_content && metadata.is_file() => {
                    self.file_of_another_name(child)
                }
                // Not a policy. Reading a pipe would block.
                Ok(_) => {}
                Err(error) if self.which.has(child) => self.fail(child, &error),
                // A broken symlink that does not look like a policy.
                Err(_) => {}
            }
        }
    }

    /// Returns `true` if this file was found before under another name, and remembers it.
    fn has_found(&mut self, metadata: &Metadata) -> bool {
        metadata.is_file() && !self.found.insert((metadata.dev(), metadata.ino()))
    }

    fn file(&mut self, path: &Path) {
        if self.sources.len() >= MAX_FILES {
            if self.sources.len() == MAX_FILES && self.report.is_empty() {
                self.refuse(path, format!("more than {MAX_FILES} files"));
            }
            return;
        }
        match contents(path, MAX_BYTES.saturating_sub(self.bytes)) {
            Ok(text) => self.add(path, text),
            Err(error) => self.fail(path, &error),
        }
    }

    /// Reads a file whose name is not that of a policy. Skips it if its content is not a policy
    /// either, such as a README or a picture.
    fn file_of_another_name(&mut self, path: &Path) {
        match contents(path, MAX_BYTES.saturating_sub(self.bytes)) {
            Ok(text) if is_policy(&text) => self.add(path, text),
            Ok(_) => {}
            // A binary file is not a policy, but one that contains `domain:` may be meant as one
            // and must not be skipped silently.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && !names_a_domain(path) => {}
            Err(error) => self.fail(path, &error),
        }
    }

    fn add(&mut self, path: &Path, text: String) {
        self.bytes = self.bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        self.sources.push(Source { name: path.display().to_string(), text });
    }

    fn fail(&mut self, path: &Path, error: &io::Error) {
        self.refuse(path, format!("failed to read: {error}"));
    }

    fn refuse(&mut self, path: &Path, message: String) {
        self.report.push_unreadable(&path.display().to_string(), message);
    }
}

impl FileFilter {
    /// Returns `true` if a file would be read, by its path below the directory and its content. A
    /// path without parts is that of a file that was given by name.
    pub fn selects(&self, below: &Path, text: &str) -> bool {
        let has_dot = below.iter().any(|part| part.as_encoded_bytes().starts_with(b"."));
        let is_named = (self.dot_files || !has_dot) && self.is_named(Path::new(""), below);
        below.as_os_str().is_empty()
            || is_named && (self.has(below) || self.by_content && is_policy(text))
    }

    /// Returns `true` if a file is selected by its name.
    fn has(&self, path: &Path) -> bool {
        if self.tests { is_tests(path) } else { is_yaml(path) }
    }

    /// Returns `true` if the path below `root` begins with the prefix.
    fn is_named(&self, root: &Path, path: &Path) -> bool {
        let below = path.strip_prefix(root).unwrap_or(path);
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        parts.join(".").starts_with(&self.prefix)
    }
}

/// Returns `true` if a file that is not text has the first word of a policy in its first 64 KiB, or
/// cannot be read.
fn names_a_domain(path: &Path) -> bool {
    const FIRST: u64 = 64 * 1024;
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FIRST).read_to_end(&mut bytes));
    read.is_err() || bytes.windows(7).any(|word| word == b"domain:" || word == b"domain\"")
}

/// Returns the content of a file of at most `room` bytes.
fn contents(path: &Path, room: u64) -> io::Result<String> {
    let mut text = String::new();
    // Reads one byte more than fits, to detect a file that grows while it is read.
    let length = File::open(path)?.take(room.saturating_add(1)).read_to_string(&mut text)?;
    if u64::try_from(length).unwrap_or(u64::MAX) > room {
        return Err(io::Error::other(format!("more than {MAX_BYTES} bytes of policies")));
    }
    Ok(text)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Returns `true` if a name in a directory is that of a policy. Tests are in the same directories,
/// see [`tests`].
fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
        && !is_tests(path)
}

fn is_tests(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.ends_with(b".test.yaml") || name.ends_with(b".test.yml")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(root: &Path, which: FileFilter) -> PolicyLocations {
        PolicyLocations { paths: vec![root.to_owned()], which, overlays: vec![] }
    }

    fn names_of(root: &Path, which: FileFilter) -> Vec<String> {
        let sources = read(&below(root, which)).unwrap();
        let relative = |source: &Source| {
            Path::new(&source.name).strip_prefix(root).unwrap().display().to_string()
        };
        sources.iter().map(relative).collect()
    }

    #[test]
    fn a_directory_is_read_whole_in_sorted_order() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("b/c")).unwrap();
        fs::create_dir(root.path().join(".git")).unwrap();
        for name in ["z.yaml", "a.yml", "b/c/d.yaml", "README.md", ".hidden.yaml", ".git/x.yaml"] {
            fs::write(root.path().join(name), "domain: d").unwrap();
        }
        assert_eq!(names_of(root.path(), FileFilter::default()), ["a.yml", "b/c/d.yaml", "z.yaml"]);
    }

    #[test]
    fn an_unreadable_file_that_may_be_a_policy_is_reported() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("edge"), b"domain: caf\xe9\n").unwrap();
        let which = FileFilter { by_content: true, ..FileFilter::default() };
        let report = read(&below(root.path(), which)).unwrap_err();
        assert!(report.to_string().contains("edge"), "{report}");
    }

    #[test]
    fn files_are_selected_by_content_and_name() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("config/.d")).unwrap();
        for name in [
            "config/a",
            "config/b.json",
            "config/.d/c.yaml",
            "config.e.conf",
            "other.yaml",
            "config/empty.yml",
        ] {
            fs::write(root.path().join(name), "# a policy\ndomain: d\n").unwrap();
        }
        let readme = "The domain: is explained elsewhere\n```yaml\ndomain: d\n```\n";
        fs::write(root.path().join("config/README.md"), readme).unwrap();
        fs::write(root.path().join("config/image"), [0xff, 0x00]).unwrap();
        fs::write(root.path().join("config/b.json"), r#"{ "domain": "json", "descriptors": [] }"#)
            .unwrap();
        let which = |dot_files, prefix: &str| FileFilter {
            by_content: true,
            dot_files,
            prefix: prefix.to_owned(),
            tests: false,
        };
        let below = ["config/a", "config/b.json", "config/empty.yml", "config.e.conf"];
        assert_eq!(names_of(root.path(), which(false, "config.")), below);
        assert_eq!(names_of(root.path(), which(true, "config."))[0], "config/.d/c.yaml");
        assert!(names_of(root.path(), which(false, "")).contains(&"other.yaml".to_owned()));
        assert_eq!(names_of(root.path(), which(false, "nothing")), [""; 0]);
        let selects = |path: &str, text| which(false, "config.").selects(Path::new(path), text);
        for (path, text, is_selected) in [
            ("config/a", "domain: d", true),
            ("config/empty.yml", "", true),
            ("", readme, true),
            ("config/README.md", readme, false),
            ("config/.a", "domain: d", false),
            ("b.yml", "", false),
        ] {
            assert_eq!(selects(path, text), is_selected, "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_config_map_is_read_once() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let version = root.path().join("..2026_11_21");
        fs::create_dir(&version).unwrap();
        fs::write(version.join("edge.yaml"), "domain: edge").unwrap();
        symlink("..2026_11_21", root.path().join("..data")).unwrap();
        symlink("..data/edge.yaml", root.path().join("edge.yaml")).unwrap();
        assert_eq!(names_of(root.path(), FileFilter::default()), ["edge.yaml"]);
        assert_eq!(
            names_of(root.path(), FileFilter { dot_files: true, ..FileFilter::default() }),
            ["..2026_11_21/edge.yaml"]
        );
    }

    #[test]
    fn everything_that_cannot_be_read_is_in_one_report() {
        let root = tempfile::tempdir().unwrap();
        let binary = root.path().join("binary.yaml");
        fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
        let paths = vec![root.path().join("absent.yaml"), binary, root.path().join("gone")];
        let report = read(&PolicyLocations { paths, ..PolicyLocations::default() }).unwrap_err();
        assert_eq!(report.len(), 3);
        let text = report.to_string();
        assert!(
            text.contains("absent.yaml") && text.contains("binary.yaml") && text.contains("gone"),
            "{text}"
        );
    }

    #[test]
    fn an_overlay_does_not_take_the_place_of_a_volume_that_is_not_mounted() {
        let root = tempfile::tempdir().unwrap();
        let empty = root.path().join("empty");
        let overlay = root.path().join("overlay.yaml");
        fs::create_dir(&empty).unwrap();
        fs::write(&overlay, "overlay: []").unwrap();
        let places = |paths| PolicyLocations {
            paths,
            overlays: vec![overlay.clone()],
            ..PolicyLocations::default()
        };
        let report = read(&places(vec![empty])).unwrap_err();
        assert!(report.to_string().contains("no *.yaml"), "{report}");
        assert_eq!(read(&places(vec![])).unwrap().len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_back_up_ends() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("loop")).unwrap();
        let report = read(&below(root.path(), FileFilter::default())).unwrap_err();
        assert!(report.to_string().contains("nested more than 16"));
    }
}
