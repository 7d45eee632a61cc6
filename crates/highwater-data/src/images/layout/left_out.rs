//! What lies among images and is not read.

use std::collections::BTreeMap;
use std::fmt;

/// What lies among images and is not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Splits to test on.
    pub splits: Vec<String>,
    /// Other folders next to splits.
    pub folders: Vec<String>,
    /// Images next to folders of classes: they have no class.
    pub beside: usize,
    /// Images of formats that are not read, by their endings.
    pub unread: BTreeMap<String, usize>,
    /// Other files, by their endings.
    pub others: BTreeMap<String, usize>,
    /// Hidden files and folders.
    pub hidden: usize,
    /// Images in folders within classes: they are not left out, and people may not expect them.
    pub nested: usize,
    /// Classes that are one folder, by links.
    pub same: Vec<[String; 2]>,
}

impl fmt::Display for LeftOut {
    /// A line for each kind of things; nothing where all is as expected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        lines.extend(
            self.splits
                .iter()
                .map(|name| format!("{name}/ is left unread")),
        );
        if !self.folders.is_empty() {
            let names: Vec<String> = self.folders.iter().map(|name| format!("{name}/")).collect();
            lines.push(format!("left out next to the splits: {}", names.join(", ")));
        }
        if self.beside > 0 {
            let lie = counted(self.beside, "image lies", "images lie");
            lines.push(format!("left out: {lie} next to the folders of classes"));
        }
        if !self.unread.is_empty() {
            let endings = endings(&self.unread);
            lines.push(format!(
                "left out: images of formats that are not read: {endings}"
            ));
        }
        if !self.others.is_empty() {
            lines.push(format!("left out: other files: {}", endings(&self.others)));
        }
        if self.hidden > 0 {
            let hidden = counted(
                self.hidden,
                "hidden file or folder",
                "hidden files or folders",
            );
            lines.push(format!("left out: {hidden}"));
        }
        if self.nested > 0 {
            let lie = counted(self.nested, "image lies", "images lie");
            lines.push(format!(
                "{lie} in folders within classes, and belong to these"
            ));
        }
        for [one, other] in &self.same {
            lines.push(format!(
                "warning: the classes `{one}` and `{other}` are the same folder"
            ));
        }
        f.write_str(&lines.join("\n"))
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Counts by endings, such as `3 .txt, 1 without an ending`.
fn endings(counts: &BTreeMap<String, usize>) -> String {
    let each = counts.iter().map(|(ending, count)| match &ending[..] {
        "" => format!("{count} without an ending"),
        ending => format!("{count} .{ending}"),
    });
    each.collect::<Vec<_>>().join(", ")
}
