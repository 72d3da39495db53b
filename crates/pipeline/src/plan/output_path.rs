//! The path of an output: names of files and links.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hob_expression::{Mistake, Part, Template, unknown_variable};

use super::template::refuse_bare_braces;
use crate::run::RunId;

/// The only variable: the id of the run.
const RUN: &str = "run";
/// Longer ids are truncated: a file name has at most 255 bytes.
const MAX_RUN_BYTES: usize = 120;

/// The path of a JSON Lines file, which may contain `${run}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPath(Template<RunVariable>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct RunVariable;

impl OutputPath {
    /// The file of a run: the path with the run id in place of `${run}`, or before the extension if there is no `${run}`.
    /// If a name is taken, an `attempt` of 2 or more gives another one.
    pub(crate) fn file(&self, run: &RunId, attempt: u32) -> PathBuf {
        let run = encode(run.as_str());
        let run = if attempt < 2 { run } else { format!("{run}~{attempt}") };
        if let Some(link) = self.link() {
            return with_suffix(link, &run);
        }
        let part = |part: &Part<RunVariable>| match part {
            Part::Text(text) => text.clone(),
            Part::Variable(RunVariable) => run.clone(),
        };
        self.0.parts().iter().map(part).collect::<String>().into()
    }

    /// The link to the newest output; `None` if the path contains `${run}`.
    pub fn link(&self) -> Option<&Path> {
        self.0.fixed().map(Path::new)
    }
}

impl fmt::Display for OutputPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.parts().iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Variable(RunVariable) => write!(f, "${{{RUN}}}"),
        })
    }
}

impl FromStr for OutputPath {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Mistake> {
        refuse_bare_braces(text, |name| name == RUN)?;
        let find = |name: &str| match name {
            RUN => Ok(RunVariable),
            _ => Err(format!("{}; the variable of a file is `${{run}}`", unknown_variable(name, []))),
        };
        Template::parse(text, find).map(Self)
    }
}

/// Appends a suffix to the stem: `out/dockets.jsonl` becomes `out/dockets-SUFFIX.jsonl`.
pub(crate) fn with_suffix(path: &Path, word: &str) -> PathBuf {
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
        path.parse::<OutputPath>().unwrap().file(&run.parse().unwrap(), attempt).to_str().unwrap().to_owned()
    }

    #[test]
    fn file_name_contains_the_run_id() {
        assert_eq!(file("out/dockets.jsonl", "r1", 1), "out/dockets-r1.jsonl");
        assert_eq!(file("out/dockets.jsonl", "r1", 2), "out/dockets-r1~2.jsonl");
        assert_eq!(file("dockets", "r1", 1), "dockets-r1");
        assert_eq!(file("out/${run}/d.${run}.jsonl", "r1", 1), "out/r1/d.r1.jsonl");
        assert_eq!(file("out/$${run}.{x}.jsonl", "r1", 1), "out/${run}.{x}-r1.jsonl");
        let link = |path: &str| path.parse::<OutputPath>().unwrap().link().map(Path::to_owned);
        assert_eq!(link("out/d.jsonl"), Some(PathBuf::from("out/d.jsonl")));
        assert_eq!(link("out/${run}/d.jsonl"), None);
    }

    #[test]
    fn unknown_variable_is_rejected() {
        let error = |path: &str| path.parse::<OutputPath>().unwrap_err().to_string();
        assert_eq!(error("a/${key}"), "column 3: unknown variable `key`; the variable of a file is `${run}`");
        assert_eq!(error("a/{run}"), "column 3: `{run}` is text, not a variable; write `${run}`");
    }

    #[test]
    fn ids_make_valid_names_inside_the_folder() {
        let airflow = file("d.jsonl", "manual_2024-09-17T14:30:00+00:00", 1);
        assert_eq!(airflow, "d-manual_2024-09-17T14%3A30%3A00%2B00%3A00.jsonl");
        assert_eq!(file("out/${run}/d.jsonl", "..", 1), "out/%2E./d.jsonl");
        assert_eq!(encode("a/b\\c\0d%"), "a%2Fb%5Cc%00d%25");
        let long = file("out/dockets.jsonl", &":".repeat(250), 1);
        assert!(long.len() < 150 && !long.contains("%."), "{long}");
    }
}
