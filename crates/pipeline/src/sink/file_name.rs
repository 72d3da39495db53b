//! What the file of a run is called, and the name that leads to the newest one.

use std::path::{Path, PathBuf};

use crate::run::RunId;

/// Stands in a path for the run.
const RUN: &str = "{run}";
/// Longer ids are cut, since the name of a file has 255 bytes at most.
const MAX_RUN_BYTES: usize = 120;

/// The file of a run: the path with the run in place of `{run}`, or before the extension where the path has no such
/// place. From 2 on, `attempt` makes other names, for a name that is taken.
pub(super) fn file_path(path: &Path, run: &RunId, attempt: u32) -> PathBuf {
    let run = encode(run.as_str());
    let run = if attempt < 2 { run } else { format!("{run}~{attempt}") };
    match path.to_str() {
        Some(text) if text.contains(RUN) => PathBuf::from(text.replace(RUN, &run)),
        _ => with_suffix(path, &run),
    }
}

/// The name that leads to the newest output; `None` where the path has a place for the run.
pub(super) fn link_path(path: &Path) -> Option<&Path> {
    path.to_str().is_none_or(|text| !text.contains(RUN)).then_some(path)
}

/// `out/dockets.jsonl` with a word: `out/dockets-WORD.jsonl`.
pub(super) fn with_suffix(path: &Path, word: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push("-");
    name.push(word);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// An id as a part of a file's name, on any file system: letters, digits, `_`, `-` and `.` but in front stay, all else
/// becomes `%XX`.
fn encode(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for (at, byte) in id.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"_-".contains(&byte) || (byte == b'.' && at > 0);
        let part = if plain { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        if text.len() + part.len() > MAX_RUN_BYTES {
            break;
        }
        text.push_str(&part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, run: &str, attempt: u32) -> String {
        file_path(Path::new(path), &run.parse().unwrap(), attempt).to_str().unwrap().to_owned()
    }

    #[test]
    fn a_run_has_a_file_of_its_name() {
        assert_eq!(file("out/dockets.jsonl", "r1", 1), "out/dockets-r1.jsonl");
        assert_eq!(file("out/dockets.jsonl", "r1", 2), "out/dockets-r1~2.jsonl");
        assert_eq!(file("dockets", "r1", 1), "dockets-r1");
        assert_eq!(file("out/{run}/d.{run}.jsonl", "r1", 1), "out/r1/d.r1.jsonl");
        assert_eq!(link_path(Path::new("out/d.jsonl")), Some(Path::new("out/d.jsonl")));
        assert_eq!(link_path(Path::new("out/{run}/d.jsonl")), None);
    }

    #[test]
    fn no_id_leads_elsewhere_or_makes_a_name_that_cannot_be() {
        let airflow = file("d.jsonl", "manual_2024-09-17T14:30:00+00:00", 1);
        assert_eq!(airflow, "d-manual_2024-09-17T14%3A30%3A00%2B00%3A00.jsonl");
        assert_eq!(file("out/{run}/d.jsonl", "..", 1), "out/%2E./d.jsonl");
        assert_eq!(encode("a/b\\c\0d%"), "a%2Fb%5Cc%00d%25");
        let long = file("out/dockets.jsonl", &":".repeat(250), 1);
        assert!(long.len() < 150 && !long.contains("%."), "{long}");
    }
}
