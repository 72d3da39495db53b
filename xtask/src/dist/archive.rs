//! A folder as a tar archive.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};

/// A folder in memory, with its files and subfolders by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    mode: u32,
    /// The number of the user and the group.
    owner: u64,
    /// `None` for a folder.
    content: Option<Vec<u8>>,
}

const ROOT: u64 = 0;

impl Tree {
    /// Adds a file, and the folders of its path.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        self.add(path, Entry { mode, owner: ROOT, content: Some(content.into()) });
    }

    /// Adds an empty folder.
    pub(crate) fn folder(&mut self, path: &str, mode: u32, owner: u64) {
        self.add(path, Entry { mode, owner, content: None });
    }

    fn add(&mut self, path: &str, entry: Entry) {
        for (end, _) in path.match_indices('/') {
            let folder = Entry { mode: 0o755, owner: ROOT, content: None };
            self.entries.entry(path[..end].to_owned()).or_insert(folder);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// The sum of the sizes of all files.
    pub(crate) fn size(&self) -> usize {
        self.entries.values().filter_map(|entry| entry.content.as_ref()).map(Vec::len).sum()
    }

    /// The archive. `time` is when every file was changed, in seconds since 1970.
    pub(crate) fn tar(&self, time: u64) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_uid(entry.owner);
            header.set_gid(entry.owner);
            header.set_mtime(time);
            let content = entry.content.as_deref().unwrap_or_default();
            header.set_size(content.len() as u64);
            let folder = entry.content.is_none();
            header.set_entry_type(if folder { tar::EntryType::Directory } else { tar::EntryType::Regular });
            let path = if folder { format!("{path}/") } else { path.clone() };
            archive
                .append_data(&mut header, &path, content)
                .with_context(|| format!("cannot archive {path}"))?;
        }
        Ok(archive.into_inner()?)
    }
}

/// Compresses without a time, so that the same bytes have the same result.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_has_folders_modes_owners_and_one_time() {
        let mut tree = Tree::default();
        tree.file("usr/bin/hob", 0o755, "program");
        tree.folder("var/lib/hob", 0o700, 65_532);
        let tar = tree.tar(1_700_000_000).unwrap();
        let seen: Vec<(String, u32, u64, u64)> = tar::Archive::new(&*tar)
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                assert_eq!(header.mtime().unwrap(), 1_700_000_000);
                let path = entry.path().unwrap().to_str().unwrap().to_owned();
                (path, header.mode().unwrap(), header.uid().unwrap(), header.size().unwrap())
            })
            .collect();
        let expected = [
            ("usr/", 0o755, 0, 0),
            ("usr/bin/", 0o755, 0, 0),
            ("usr/bin/hob", 0o755, 0, 7),
            ("var/", 0o755, 0, 0),
            ("var/lib/", 0o755, 0, 0),
            ("var/lib/hob/", 0o700, 65_532, 0),
        ];
        assert_eq!(seen, expected.map(|(path, mode, owner, size)| (path.to_owned(), mode, owner, size)));
        assert_eq!(tree.size(), 7);
    }
}
