//! `hob schema diff`: two versions of a schema file, from disk or from git.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use hob_schema::Schema;
use hob_schema::diff::{self, Change};

/// Marks a version in git: `git:REVISION:PATH`, or `git:REVISION` for the file of the same name.
const GIT: &str = "git:";

/// The changes of schema files since an earlier version.
pub(super) fn changes_since(against: &str, files: &[String]) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for file in files {
        // A file that the revision does not have is new, so nothing depends on it yet.
        if let Some(old) = earlier(against, Path::new(file))? {
            changes.extend(diff::diff(&old, &read(file)?));
        }
    }
    Ok(changes)
}

/// The changes from one version to another.
pub(super) fn changes_between(old: &str, new: &str) -> Result<Vec<Change>> {
    Ok(diff::diff(&read(old)?, &read(new)?))
}

fn earlier(against: &str, file: &Path) -> Result<Option<Schema>> {
    let Some(revision) = against.strip_prefix(GIT).filter(|rest| !rest.contains(':')) else {
        return read(against).map(Some);
    };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().and_then(|name| name.to_str()).context("a schema file has a name")?;
    git(folder, &["rev-parse", "--verify", "--quiet", &format!("{}^{{commit}}", checked(revision)?)])
        .with_context(|| format!("git has no revision {revision:?}"))?;
    match git(folder, &["show", &format!("{revision}:./{name}")]) {
        Ok(text) => Ok(Some(Schema::parse(&format!("{against}:{}", file.display()), &text)?)),
        Err(_) => Ok(None),
    }
}

fn read(version: &str) -> Result<Schema> {
    let text = match version.strip_prefix(GIT) {
        None => fs::read_to_string(version).with_context(|| version.to_owned())?,
        Some(object) if object.contains(':') => {
            git(Path::new("."), &["show", checked(object)?]).with_context(|| version.to_owned())?
        }
        Some(_) => bail!("{version} names no file; write git:REVISION:PATH"),
    };
    Ok(Schema::parse(version, &text)?)
}

/// A revision that git cannot take for an option.
fn checked(revision: &str) -> Result<&str> {
    if revision.is_empty() || revision.starts_with('-') {
        bail!("{revision:?} is not a revision of git");
    }
    Ok(revision)
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("git").arg("-C").arg(folder).args(arguments).output().context("cannot run git")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("the file is not UTF-8")
}
