//! `hob config`, and the errors of `hob serve` for an invalid configuration.

use std::path::Path;
use std::process::Output;

use hob_testkit::{LIMIT, wait_for};
use tempfile::TempDir;

use crate::program::{Server, hob, stderr_line};

/// A folder with a `hob.toml`.
fn folder(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hob.toml"), text).unwrap();
    folder
}

fn config(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = hob();
    command.current_dir(folder).arg("config").args(arguments).envs(variables.iter().copied());
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The settings in the packages of a release.
#[test]
fn packaged_settings_are_valid() {
    let packaged =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/hob.toml")).unwrap();
    let checked = stdout(&config(folder(&packaged).path(), &["check"], &[]));
    assert_eq!(checked, "hob.toml: OK\n");
}

#[test]
fn version_is_the_same_as_a_command_and_as_an_option() {
    let printed = |argument: &str| stdout(&hob().arg(argument).output().unwrap());
    let version = concat!("hob ", env!("CARGO_PKG_VERSION"));
    assert!(printed("version").starts_with(version), "{}", printed("version"));
    assert_eq!(printed("version"), printed("--version"));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    stdout(&hob().arg("man").arg(&pages).output().unwrap());
    for (page, text) in
        [("hob.1", "hob\\-serve(1)"), ("hob-serve.1", "\\-\\-listen"), ("hob-uptime-check.1", "assert")]
    {
        let page = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(page.contains(text), "{page}");
    }
}

#[test]
fn mistake_is_reported_with_file_line_and_field() {
    for (text, expected) in [
        (
            "[server]\nlisten = \"here\"\n",
            "hob: hob.toml:2:10: [server] listen: invalid socket address syntax",
        ),
        ("[server]\nlistn = \"127.0.0.1:1\"\n", "hob: hob.toml:2:1: [server] listn: unknown field `listn`"),
        ("[severs]\n", "hob: hob.toml:1:2: unknown section `severs`"),
        (
            "[uptime]\nprivate_targets = false\n",
            "hob: hob.toml:2:1: [uptime] `private_targets` has been replaced by [outbound] private",
        ),
        (
            "[outbound]\nallow = [\"intern.example\"]\n",
            "hob: hob.toml:2:10: [outbound] allow[0]: \"intern.example\" is not a network;",
        ),
        (
            "[redis]\nembedded_memory_mib = -1\n",
            "hob: hob.toml:2:23: [redis] embedded_memory_mib: invalid value",
        ),
        (
            "[sign_in.oidc]\nissuer = \"http://login.example.com\"\n",
            "hob: hob.toml:2:10: [sign_in] oidc: \"http://login.example.com\" must start with https://;",
        ),
        (
            "[sign_in.oidc]\nissuer = \"https://login.example.com\"\nclient_id = \"hob\"\nroles = []\n\
             redirect_url = \"https://hob.example.com/sign-in/oidc/callback\"\n",
            "hob: hob.toml:4:9: [sign_in] oidc: must have 1 to 1000 rules;",
        ),
        (
            "[sign_in.oidc]\nissuer = \"https://login.example.com\"\nclient_secret = \"hunter2\"\n",
            "hob: hob.toml:3:17: [sign_in] oidc: expected a reference to a secret;",
        ),
        (
            "[secrets]\nslack = \"env:SLACK_URL\"\n",
            "hob: hob.toml:2:9: [secrets] slack: the services and hosts of this secret are missing; write slack = { from = \"env:SLACK_URL\", \
             for = [\"uptime\"], hosts = [\"example.com\"] }",
        ),
        (
            "[secrets.slack]\nfrom = \"env:A\"\nfor = [\"uptime\"]\n",
            "hob: hob.toml:1:1: [secrets] slack: `hosts` is missing or empty; write slack = { from = \"env:A\", ",
        ),
        (
            "[secrets.slack]\nfrom = \"file:/a\"\nhosts = [\"a.example\"]\n",
            "hob: hob.toml:1:1: [secrets] slack: `for` is missing or empty; write slack = { from = \"file:/a\", ",
        ),
        (
            "[secrets]\na = { from = \"env:A\", for = [\"chat\"], hosts = [\"a.example\"] }\n",
            "hob: hob.toml:2:30: [secrets] a.for[0]: unknown service \"chat\"; services that can use secrets: uptime, pipeline",
        ),
    ] {
        let folder = folder(text);
        let error = stderr_line(&config(folder.path(), &["check"], &[]));
        assert!(error.starts_with(expected), "{error}");
        let serve = hob().current_dir(&folder).arg("serve").output().unwrap();
        assert_eq!(stderr_line(&serve), error, "`hob serve` reports the same error");
    }
}

#[test]
fn mistake_in_the_environment_is_reported_with_its_variable() {
    let folder = folder("");
    let error = stderr_line(&config(folder.path(), &["check"], &[("HOB_LISTEN", "here")]));
    assert!(error.starts_with("hob: HOB_LISTEN: "), "{error}");
    let replaced = [("HOB_UPTIME_ALLOWED_NETWORKS", "[\"10.0.0.0/8\"]")];
    let error = stderr_line(&config(folder.path(), &["check"], &replaced));
    assert_eq!(error, "hob: HOB_UPTIME_ALLOWED_NETWORKS: has been replaced by HOB_OUTBOUND_ALLOW\n");
}

#[test]
fn given_file_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let error = stderr_line(&config(folder.path(), &["check", "--config", "other.toml"], &[]));
    assert!(error.starts_with("hob: cannot read other.toml: "), "{error}");
    assert!(stdout(&config(folder.path(), &["check"], &[])).contains("no hob.toml"));
}

#[test]
fn settings_are_shown_with_their_origin_and_without_secrets() {
    let folder = folder(
        "[redis]\nurl = \"redis://:hunter2@127.0.0.1:6390\"\n[secrets.slack]\nfrom = \"env:SLACK_URL\"\n\
         for = [\"uptime\"]\nhosts = [\"*.slack.com:443\"]\n",
    );
    let variables = [
        ("HOB_LISTEN", "127.0.0.1:7171"),
        ("HOB_OUTBOUND_ALLOW", "[\"10.0.0.0/8\", \"10.1.2.3\"]"),
        ("SLACK_URL", "https://hooks.slack.com/services/s3cret"),
    ];
    let shown = stdout(&config(folder.path(), &["show"], &variables));
    let line = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    assert!(line("listen = \"127.0.0.1:7171\"").ends_with("# environment HOB_LISTEN"), "{shown}");
    let allow = "allow = [\"10.0.0.0/8\", \"10.1.2.3\"]";
    assert!(line(allow).ends_with("# environment HOB_OUTBOUND_ALLOW"), "{shown}");
    assert!(line("url = \"redis://…@127.0.0.1:6390\"").ends_with("# hob.toml:2"), "{shown}");
    assert!(line("embedded_memory_mib = 512").ends_with("# default"), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("s3cret"), "{shown}");
    let slack = r#"slack = { for = ["uptime"], from = "env:SLACK_URL", hosts = ["*.slack.com:443"] }"#;
    assert!(line(slack).ends_with("# hob.toml:3"), "{shown}");
}

/// The chat's connections count towards those of the server, so a larger limit would never be reached.
#[tokio::test]
async fn larger_connection_limit_of_the_chat_is_a_warning() {
    let text = "[server]\nmax_connections = 100\n[chat]\nmax_connections = 200\n";
    let folder = folder(text);
    let expected = "[chat] max_connections (200) is larger than [server] max_connections (100)";
    let output = config(folder.path(), &["check"], &[]);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains(&format!("warning: {expected}")), "{stdout}");
    assert_eq!(output.status.code(), Some(3));
    let output = hob().current_dir(&folder).arg("doctor").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains(&format!("warning  config    {expected}")), "{stdout}");
    let server = Server::start_configured("127.0.0.1:0", text);
    // The log is written by another thread.
    wait_for("the warning in the log", LIMIT, async || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("settings contradict each other"));
        if lines.filter(|line| line.contains(expected)).count() == 1 { Ok(()) } else { Err(log) }
    })
    .await;

    let equal = config(folder.path(), &["check"], &[("HOB_CHAT_MAX_CONNECTIONS", "100")]);
    assert_eq!(equal.status.code(), Some(0));
}

#[test]
fn example_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let example = stdout(&config(folder.path(), &["example"], &[]));
    std::fs::write(folder.path().join("hob.toml"), example).unwrap();
    assert_eq!(stdout(&config(folder.path(), &["check"], &[])), "hob.toml: OK\n");
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = hob().args(["completions", shell]).output().unwrap();
        assert!(stdout(&output).contains("doctor"), "{shell}");
    }
}
