//! The memory limit of the process's control groups.
//!
//! A group's limit binds all groups below it, so the strictest of the process's own group and all
//! its ancestors holds, and the machine's total says nothing. Both hierarchies (version 1 and 2) can
//! be mounted at once; a container sees only part of them.

use std::path::{Path, PathBuf};

/// A limit on the memory of a process, and who sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit in bytes.
    pub bytes: u64,
    /// The file that states it.
    pub file: PathBuf,
}

/// The strictest limit on this process; none where there is none or the system does not tell. A file
/// is read at each call: limits can change while a process runs.
pub fn own_limit() -> Option<Limit> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let mounts = read(Path::new("/proc/self/mountinfo"))?;
    strictest_limit(&groups, &mounts, read)
}

/// The strictest limit, given the texts of `/proc/self/cgroup` and `/proc/self/mountinfo` and a way to
/// read files.
fn strictest_limit(
    groups: &str,
    mounts: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<Limit> {
    let mut limits = Vec::new();
    for (version, path) in groups.lines().filter_map(parse_group) {
        for mount in mounts.lines().filter_map(parse_mount) {
            if mount.version == version {
                limits.extend(limits_below(&mount, path, &read));
            }
        }
    }
    // The first of equals: the group nearest to the process.
    limits.into_iter().min_by_key(|limit| limit.bytes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// Where a hierarchy that controls memory is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    /// The group that is seen at the mount point.
    root: String,
    point: PathBuf,
}

/// `4:memory:/path` (version 1) or `0::/path` (version 2); none for other controllers.
fn parse_group(line: &str) -> Option<(Version, &str)> {
    let mut fields = line.splitn(3, ':');
    let (_id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    match controllers {
        "" => Some((Version::V2, path)),
        _ if controllers.split(',').any(|name| name == "memory") => Some((Version::V1, path)),
        _ => None,
    }
}

/// `35 31 0:32 /root /point rw,relatime [optional ...] - cgroup cgroup rw,memory`
fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (unescape(left.next()?), unescape(left.next()?));
    let mut right = right.split(' ');
    let (kind, _source, options) = (right.next()?, right.next()?, right.next()?);
    let version = match kind {
        "cgroup2" => Version::V2,
        "cgroup" if options.split(',').any(|name| name == "memory") => Version::V1,
        _ => return None,
    };
    Some(Mount {
        version,
        root,
        point: point.into(),
    })
}

/// Blanks and backslashes in mount points are written in octal.
fn unescape(text: &str) -> String {
    let codes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    codes.iter().fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}

/// The limits of the group `path` and of its ancestors, as far as the mount shows them, nearest first.
fn limits_below(mount: &Mount, path: &str, read: &impl Fn(&Path) -> Option<String>) -> Vec<Limit> {
    // Seen from a container, the mount point can be the group itself (its root is then the group's
    // path), or the group's path can lead outside of what is mounted (it starts with `/..`, or is
    // the host's): then what is mounted is the nearest ancestor to be seen.
    let below = Path::new(path)
        .strip_prefix(&mount.root)
        .unwrap_or(Path::new(""));
    let below = if path.starts_with("/..") {
        Path::new("")
    } else {
        below
    };
    let mut limits = Vec::new();
    for group in below.ancestors() {
        let directory = mount.point.join(group);
        for name in mount.version.limit_files() {
            let file = directory.join(name);
            if let Some(bytes) = read(&file).and_then(|text| parse_limit(&text)) {
                limits.push(Limit { bytes, file });
            }
        }
    }
    limits
}

impl Version {
    /// The files that state limits. `memory.stat` of version 1 knows the strictest of all ancestors,
    /// also of those that are not to be seen.
    fn limit_files(self) -> &'static [&'static str] {
        match self {
            Self::V1 => &["memory.limit_in_bytes", "memory.stat"],
            Self::V2 => &["memory.max", "memory.high"],
        }
    }
}

/// The limit that such a file states. `max`, and what is within a page of the largest number that
/// version 1 can hold, mean none.
fn parse_limit(text: &str) -> Option<u64> {
    let number = match text.trim() {
        word if !word.contains(char::is_whitespace) => word,
        stat => stat
            .lines()
            .find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?,
    };
    let bytes: u64 = number.trim().parse().ok()?;
    (bytes < 1 << 62).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const V1_MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    const V2_MOUNTS: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";

    fn limit(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<(u64, String)> {
        let files: BTreeMap<&Path, &str> = files
            .iter()
            .map(|&(path, text)| (Path::new(path), text))
            .collect();
        let limit = strictest_limit(groups, mounts, |path| {
            files.get(path).map(|&text| text.to_owned())
        })?;
        Some((limit.bytes, limit.file.to_str().unwrap().to_owned()))
    }

    #[test]
    fn v1_takes_the_strictest_ancestor() {
        let groups = "5:devices:/\n4:cpu,memory:/a/b/c\n0::/x";
        let files = [
            (
                "/sys/fs/cgroup/memory/a/b/c/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "3000\n"),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2000\n"),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ];
        let expected = (
            2000,
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes".to_owned(),
        );
        assert_eq!(limit(groups, V1_MOUNTS, &files), Some(expected));
        assert_eq!(limit(groups, V1_MOUNTS, &files[..1]), None);
    }

    #[test]
    fn v1_knows_limits_of_ancestors_that_are_hidden() {
        let mounts = "35 31 0:32 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        let files = [
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "cache 0\nrss 17\nhierarchical_memory_limit 4096\ntotal_cache 9\n",
            ),
        ];
        let expected = (4096, "/sys/fs/cgroup/memory/memory.stat".to_owned());
        assert_eq!(limit("4:memory:/docker/1f", mounts, &files), Some(expected));
    }

    #[test]
    fn v2_takes_the_strictest_of_max_and_high_of_all_ancestors() {
        let root = "/sys/fs/cgroup/user.slice";
        let max = format!("{root}/app.scope/memory.max");
        let high = format!("{root}/memory.high");
        let files = [
            (max.as_str(), "5000\n"),
            (high.as_str(), "4000\n"),
            ("/sys/fs/cgroup/x", "1"),
        ];
        let groups = "0::/user.slice/app.scope\n";
        assert_eq!(limit(groups, V2_MOUNTS, &files), Some((4000, high.clone())));
        let files = [(max.as_str(), "5000\n"), (high.as_str(), "max\n")];
        assert_eq!(limit(groups, V2_MOUNTS, &files), Some((5000, max.clone())));
    }

    #[test]
    fn a_container_with_its_own_namespace_sees_its_group_at_the_mount_point() {
        let files = [("/sys/fs/cgroup/memory.max", "1048576\n")];
        let expected = Some((1 << 20, "/sys/fs/cgroup/memory.max".to_owned()));
        assert_eq!(limit("0::/\n", V2_MOUNTS, &files), expected);
        // Mounted by bind, with the group's path as the root.
        let bind = "30 23 0:26 /kube/pod7 /sys/fs/cgroup ro - cgroup2 cgroup rw";
        assert_eq!(limit("0::/kube/pod7\n", bind, &files), expected);
    }

    #[test]
    fn paths_of_the_host_or_outside_the_namespace_fall_back_to_what_is_mounted() {
        let files = [("/sys/fs/cgroup/memory.max", "777\n")];
        let expected = Some((777, "/sys/fs/cgroup/memory.max".to_owned()));
        assert_eq!(limit("0::/../other\n", V2_MOUNTS, &files), expected);
        assert_eq!(
            limit("0::/system.slice/docker-1f.scope\n", V2_MOUNTS, &files),
            expected
        );
    }

    #[test]
    fn both_versions_at_once_and_odd_mount_points() {
        let mounts = "\
35 31 0:32 / /mnt/a\\040b rw - cgroup cgroup rw,memory,cpu
41 31 0:38 / /mnt/v2 rw - cgroup2 cgroup2 rw";
        let files = [
            ("/mnt/a b/g/memory.limit_in_bytes", "10\n"),
            ("/mnt/v2/g/memory.max", "9\n"),
        ];
        let groups = "4:memory:/g\n0::/g\n";
        assert_eq!(
            limit(groups, mounts, &files),
            Some((9, "/mnt/v2/g/memory.max".to_owned()))
        );
        assert_eq!(
            limit(groups, mounts, &files[..1]),
            Some((10, "/mnt/a b/g/memory.limit_in_bytes".to_owned()))
        );
    }

    #[test]
    fn garbage_is_no_limit() {
        let file = "/sys/fs/cgroup/memory.max";
        for text in ["", "many\n", "-1\n", "12 34\n", "99999999999999999999999\n"] {
            assert_eq!(limit("0::/\n", V2_MOUNTS, &[(file, text)]), None, "{text}");
        }
        assert_eq!(limit("nonsense\n\n", "also\n - \n", &[]), None);
    }
}
