//! `hob init`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::program::{hob, stderr_line};

fn init(folder: &Path, arguments: &[&str]) -> Output {
    hob().current_dir(folder).arg("init").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn defaults_are_a_valid_configuration_with_an_admin_token() {
    let folder = tempfile::tempdir().unwrap();
    let written = init(folder.path(), &[]);
    assert!(written.status.success(), "{written:?}");
    let (file, token) = (folder.path().join("hob.toml"), folder.path().join("hob-admin-token"));
    assert_eq!((mode(&file), mode(&token)), (0o600, 0o600));
    assert!(fs::read_to_string(&token).unwrap().trim().len() >= 24);
    let checked = hob().current_dir(folder.path()).args(["config", "check"]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let shown = hob().current_dir(folder.path()).args(["config", "show"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("hob-admin-token"), "{shown}");
}

#[test]
fn options_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--only=uptime,chat",
        "--redis=redis://10.0.0.1:6379",
        "--database=postgres://hob:secret@10.0.0.2/hob",
        "--listen=0.0.0.0:7000",
        "--out=node.toml",
    ];
    assert!(init(folder.path(), &arguments).status.success());
    let text = fs::read_to_string(folder.path().join("node.toml")).unwrap();
    for line in [
        "services = [\"uptime\", \"chat\"]",
        "url = \"redis://10.0.0.1:6379\"",
        "url = \"postgres://hob:secret@10.0.0.2/hob\"",
        "listen = \"0.0.0.0:7000\"",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

/// The file that all commands read, `--config` or `HOB_CONFIG`, is the one that is written.
#[test]
fn file_of_the_other_commands_is_written() {
    let folder = tempfile::tempdir().unwrap();
    assert!(init(folder.path(), &["--config=node.toml"]).status.success());
    let checked = hob().current_dir(folder.path()).args(["config", "check", "--config=node.toml"]).output();
    assert!(checked.unwrap().status.success());
    let both = init(folder.path(), &["--config=node.toml", "--out=other.toml"]);
    assert!(both.status.success(), "{both:?}");
    assert!(folder.path().join("other.toml").exists());
    assert!(!folder.path().join("hob.toml").exists());
}

#[test]
fn existing_file_is_not_overwritten_and_existing_token_is_used() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hob-admin-token"), "of-another-node-0123456789").unwrap();
    assert!(init(folder.path(), &[]).status.success());
    assert_eq!(
        fs::read_to_string(folder.path().join("hob-admin-token")).unwrap(),
        "of-another-node-0123456789"
    );
    let again = init(folder.path(), &[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr_line(&again).contains("hob.toml exists"), "{again:?}");
}

#[test]
fn wrong_answer_is_reported_and_writes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let refused = init(folder.path(), &["--redis=http://10.0.0.1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr_line(&refused).contains("[redis] url"), "{refused:?}");
    assert!(!folder.path().join("hob.toml").exists());
}
