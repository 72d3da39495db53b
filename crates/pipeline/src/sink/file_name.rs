//! Names of output files and links.

use std::path::{Path, PathBuf};

use crate::run::RunId;

/// Placeholder for the run id in a path.
const RUN: &str = "{run}";
/// Longer ids are truncated: a file name has at most 255 bytes.
const MAX_RUN_BYTES: usize = 120;

/// The file of a run: the path with the run id in place of `{run}`, or before the extension if there is no `{run}`. If a
/// name is taken, an `attempt` of 2 or more gives another one.
pub(super) fn file_path(path: &Path, run: &RunId, attempt: u32) -> PathBuf {
    let run = encode(run.as_str());
    let run = if attempt < 2 { run } else { format!("{run}~{attempt}") };
    match path.to_str() {
        Some(text) if text.contains(RUN) => PathBuf::from(text.replace(RUN, &run)),
        _ => with_suffix(path, &run),
    }
}

/// The link to the newest output; `None` if the path contains `{run}`.
pub(super) fn link_path(path: &Path) -> Option<&Path> {
    path.to_str().is_none_or(|text| !text.contains(RUN)).then_some(path)
}

/// Appends a suffix to the stem: `out/dockets.jsonl` becomes `out/dockets-SUFFIX.jsonl`.
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

/// Encodes an id for a file name: letters, digits, `_`, `-` and `.` (except at the start) are kept, all other bytes become
/// `%XX`.
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
    fn file_name_contains_the_run_id() {
        assert_eq!(file("out/dockets.jsonl", "r1", 1), "out/dockets-r1.jsonl");
        assert_eq!(file("out/dockets.jsonl", "r1", 2), "out/dockets-r1~2.jsonl");
        assert_eq!(file("dockets", "r1", 1), "dockets-r1");
        assert_eq!(file("out/{run}/d.{run}.jsonl", "r1", 1), "out/r1/d.r1.jsonl");
        assert_eq!(link_path(Path::new("out/d.jsonl")), Some(Path::new("out/d.jsonl")));
        assert_eq!(link_path(Path::new("out/{run}/d.jsonl")), None);
    }

    #[test]
    fn ids_make_valid_names_inside_the_folder() {
        let airflow = file("d.jsonl", "manual_2024-09-17T14:30:00+00:00", 1);
        assert_eq!(airflow, "d-manual_2024-09-17T14%3A30%3A00%2B00%3A00.jsonl");
        assert_eq!(file("out/{run}/d.jsonl", "..", 1), "out/%2E./d.jsonl");
        assert_eq!(encode("a/b\\c\0d%"), "a%2Fb%5Cc%00d%25");
        let long = file("out/dockets.jsonl", &":".repeat(250), 1);
        assert!(long.len() < 150 && !long.contains("%."), "{long}");
    }
}
