//! `hob schema` on real Redis servers.

use std::process::{Output, Stdio};

use hob_testkit::{RedisCluster, RedisOptions, RedisServer, SentinelSet};

use crate::program::{hob, stderr_line};

fn schema(arguments: &[&str]) -> Output {
    hob().arg("schema").args(arguments).output().expect("cannot start hob")
}

#[track_caller]
fn stdout(output: &Output, code: i32) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    assert!(err.is_empty(), "{err}");
    out.into_owned()
}

/// Keys of the chat service, an undeclared key, and a typing flag without a TTL.
fn seeded() -> RedisServer {
    let redis = RedisServer::start();
    redis.command::<()>(&["SET", "user:42:online", "true"]);
    redis.command::<()>(&["SET", "typing:conv1:42", "1"]);
    redis.command::<()>(&["SET", "typing:conv2:42", "1", "EX", "5000"]);
    redis.command::<()>(&["SET", "surprise:1", "x"]);
    redis
}

#[test]
fn hobs_own_schemas_are_clean_and_documented() {
    assert_eq!(stdout(&schema(&["lint"]), 0), "0 errors, 0 warnings\n");
    assert_eq!(stdout(&schema(&["lint", "--format", "json"]), 0), "[]\n");
    let pages = stdout(&schema(&["docs"]), 0);
    for key in ["monitor:schedule", "user:<userId>:online", "tests:active", "requests:total", "rate_limit:"] {
        assert!(pages.contains(key), "{key} is missing");
    }
    assert!(stdout(&schema(&["json"]), 0).contains("$schema"));
}

#[test]
fn typed_keys_are_written_for_each_language() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let text = "[schema]\nname = \"mine\"\nversion = 1\n[ids]\nuserId = {}\n[key.cart]\npattern = \"cart:<userId>\"\n\
                type = \"set\"\n";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    for (language, file, method) in [
        ("typescript", "mine_keys.ts", "cart(userId: UserId): string"),
        ("python", "mine_keys.py", "def cart(self, user_id: UserId) -> str:"),
        ("go", "minekeys/minekeys.go", "func (k Keys) Cart(userID UserID) string"),
    ] {
        let printed = stdout(&schema(&["keys", "--language", language, path]), 0);
        assert!(printed.contains(method), "{printed}");
        let out = folder.path().join(language);
        stdout(&schema(&["keys", "--language", language, "--out", out.to_str().unwrap(), path]), 0);
        assert_eq!(std::fs::read_to_string(out.join(file)).unwrap(), printed);
    }
    let unknown = schema(&["keys", "--language", "cobol", path]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("typescript, python, go"));
}

#[test]
fn every_rule_has_an_explanation() {
    let list = stdout(&schema(&["explain"]), 0);
    assert!(list.lines().count() > 10, "{list}");
    for line in list.lines() {
        let id = line.split(' ').next().unwrap();
        assert!(stdout(&schema(&["explain", id]), 0).lines().count() >= 3);
    }
    assert!(stderr_line(&schema(&["explain", "nope"])).contains("unknown rule nope"));
}

#[test]
fn error_in_a_schema_file_has_a_position() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.toml");
    std::fs::write(&path, "[schema]\nname = \"bad\"\nversion = 1\n\n[key.a]\npatern = \"a:<id>\"\n").unwrap();
    let output = schema(&["lint", path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("bad.toml:6:1"), "{text}");
    let missing = stderr_line(&schema(&["lint", "nowhere.toml"]));
    assert!(missing.starts_with("hob: nowhere.toml: "), "{missing}");
}

#[test]
fn proposed_schema_matches_the_keys() {
    let redis = seeded();
    let proposal = stdout(&schema(&["infer", &redis.url(), "--name", "mine"]), 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, &proposal).unwrap();
    let report = stdout(&schema(&["audit", "--schema", path.to_str().unwrap(), &redis.url()]), 0);
    assert!(report.contains("all keys match the schemas"), "{report}");
}

#[test]
fn exit_code_follows_the_findings_and_a_baseline_hides_known_ones() {
    let redis = seeded();
    let text = stdout(&schema(&["audit", &redis.url()]), 4);
    for part in ["chat.typing", "surprise"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let json = stdout(&schema(&["audit", "--format", "json", &redis.url()]), 4);
    let folder = tempfile::tempdir().unwrap();
    let baseline = folder.path().join("known.json");
    std::fs::write(&baseline, json).unwrap();
    let known = ["audit", "--baseline", baseline.to_str().unwrap(), &redis.url()];
    let text = stdout(&schema(&known), 0);
    assert!(text.ends_with("no findings that the baseline does not have\n"), "{text}");
    redis.command::<()>(&["LPUSH", "user:43:online", "x"]);
    let text = stdout(&schema(&known), 4);
    assert!(text.contains("chat.online"), "{text}");
}

#[test]
fn snapshot_is_audited_without_a_server() {
    let redis = seeded();
    redis.command::<()>(&["SAVE"]);
    let (_, folder): (String, String) = redis.command(&["CONFIG", "GET", "dir"]);
    redis.stop();
    let file = format!("{folder}/dump.rdb");
    let report = stdout(&schema(&["audit", "--rdb", &file]), 4);
    assert!(report.contains("4 keys in the file") && report.contains("surprise"), "{report}");
    let report = stdout(&schema(&["audit", "--rdb", &file, "--database", "3"]), 0);
    assert!(report.contains("database 0 has 4 keys; choose one with --database"), "{report}");
    let missing = stderr_line(&schema(&["audit", "--rdb", "missing.rdb"]));
    assert!(missing.contains("missing.rdb"), "{missing}");
}

#[test]
fn every_master_of_a_cluster_is_audited() {
    let cluster = RedisCluster::start();
    for user in ["1", "2", "3", "4", "5", "6"] {
        let key = format!("user:{{{user}}}:online");
        cluster.master_of(&key).command::<()>(&["SET", &key, "true"]);
    }
    let text = stdout(&schema(&["audit", &cluster.url()]), 0);
    assert!(text.contains("6 keys on 3 servers"), "{text}");
}

#[test]
fn master_of_a_sentinel_set_is_audited() {
    let sentinels = SentinelSet::start();
    sentinels.master().command::<()>(&["SET", "user:42:online", "true"]);
    let text = stdout(&schema(&["audit", &sentinels.url()]), 0);
    assert!(text.contains("1 key on 1 server"), "{text}");
}

#[test]
fn tls_server_is_audited_with_the_given_authority() {
    let redis = RedisServer::start_with(&RedisOptions { tls: true, ..RedisOptions::default() });
    redis.command::<()>(&["SET", "surprise:1", "x"]);
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, redis.authority_pem()).unwrap();
    let url = format!("{}?ca={}", redis.tls_url(), ca.display());
    assert!(stdout(&schema(&["audit", &url]), 3).contains("surprise"));
    assert!(stderr_line(&schema(&["audit", &redis.tls_url()])).contains("certificate"));
}

#[test]
fn clean_is_a_dry_run_without_apply() {
    let redis = seeded();
    let clean = |more: &[&str]| {
        let url = redis.url();
        stdout(&schema(&[&["clean", "--family", "chat.typing", &url], more].concat()), 0)
    };
    assert!(clean(&[]).contains("would change 2 of 2"));
    assert_eq!(redis.command::<i64>(&["DBSIZE"]), 4);
    clean(&["--repair-ttl", "--apply"]);
    assert!(redis.command::<i64>(&["TTL", "typing:conv1:42"]) > 0);
    clean(&["--apply"]);
    assert_eq!(redis.command::<i64>(&["EXISTS", "typing:conv1:42", "typing:conv2:42"]), 0);
    assert_eq!(redis.command::<i64>(&["EXISTS", "user:42:online", "surprise:1"]), 2);
    let unknown = schema(&["clean", "--family", "nope", &redis.url()]);
    assert!(stderr_line(&unknown).contains("nope"));
}

#[test]
fn missing_server_is_an_error_without_the_password() {
    for command in [&["infer"][..], &["audit"], &["clean", "--family", "chat.typing"]] {
        let url = ["redis://:hunter2@127.0.0.1:1"];
        let text = stderr_line(&schema(&[command, &url].concat()));
        assert!(!text.contains("hunter2"), "{text}");
    }
}

/// A schema file in a new folder.
fn declared(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

const SESSIONS: &str = "[schema]\nname = \"app\"\nversion = 1\nprefix = \"app:\"\n\n[ids]\nid = {}\n\n[key.session]\n\
                        pattern = \"session-<id>\"\ntype = \"string\"\nttl = { max = \"1h\" }\nmax_keys = 100\n\
                        purpose = \"A session.\"\n";

/// Sessions without a TTL become the rule of the proposed file, but not silently.
#[test]
fn proposal_is_accepted_by_redis_and_lint_reports_what_is_suspicious() {
    let redis = RedisServer::start();
    for n in 0..300 {
        redis.command::<()>(&["SET", &format!("sess-{n:024x}"), "x"]);
    }
    redis.command::<()>(&["SET", "cart/7", "x", "EX", "100"]);
    redis.command::<()>(&["SET", "odd key%7a", "x"]);
    redis.command::<redis::Value>(&["XADD", "events", "*", "a", "1"]);
    redis.command::<redis::Value>(&["ZADD", "leaderboard:eu", "1", "a"]);
    redis.command::<redis::Value>(&["ZADD", "leaderboard:us", "1", "a"]);
    let proposal = stdout(&schema(&["infer", &redis.url()]), 0);
    for part in ["\"sess-<sess_id>\"", "\"cart/<cart_id>\"", "\"stream\"", "\"leaderboard:<leaderboard_id>\""]
    {
        assert!(proposal.contains(part), "{part} is missing in {proposal}");
    }
    let (_folder, path) = declared(&proposal);
    stdout(&schema(&["audit", "--schema", &path, &redis.url()]), 0);
    let linted = stdout(&schema(&["lint", &path]), 3);
    assert!(linted.contains("no TTL: 300 of 300 sampled keys never expire"), "{linted}");
    assert_eq!(linted.matches("no-purpose").count(), 1, "{linted}");
    let rule = stdout(&schema(&["acl", &path, "--user", "app"]), 0);
    let words: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(rule.split_whitespace().skip(1)).collect();
    redis.command::<()>(&words);
}

#[test]
fn audit_of_a_restricted_user_does_not_pass() {
    let redis = RedisServer::start();
    redis.command::<()>(&["SET", "app:session-1", "x", "EX", "100"]);
    redis.command::<()>(&["ACL", "SETUSER", "ci", "on", ">pw", "~other:*", "+@read", "+info", "+dbsize"]);
    let (_folder, path) = declared(SESSIONS);
    let url = redis.url().replace("redis://", "redis://ci:pw@");
    let text = stdout(&schema(&["audit", "--schema", &path, &url]), 4);
    assert!(text.contains("error[unreadable] app.session: 1 key"), "{text}");
    assert!(text.contains("1 key could not be read"), "{text}");
}

#[test]
fn address_needs_no_scheme_and_an_empty_database_names_the_others() {
    let redis = RedisServer::start();
    let mut connection = redis.connect();
    redis::cmd("SELECT").arg(1).exec(&mut connection).unwrap();
    redis::cmd("SET").arg("app:session-1").arg("x").exec(&mut connection).unwrap();
    let text = stdout(&schema(&["audit", &format!("127.0.0.1:{}", redis.port())]), 0);
    assert!(text.contains("database 1 has 1 key;"), "{text}");
    let text = stdout(&schema(&["infer", &redis.url()]), 0);
    assert!(text.contains("database 1 has 1 key;"), "{text}");
}

#[test]
fn options_that_contradict_each_other_are_usage_errors() {
    let url = "127.0.0.1:1";
    for (arguments, reason) in [
        (&["audit", "--database", "1", url][..], "redis://host:6379/1"),
        (&["diff", "one.toml"], "two files"),
        (&["infer", "--keys", "0", url], "--keys"),
        (&["watch", "--every", "0s", url], "--every must not be zero"),
        (&["proxy", "--max-clients", "0", "--with", "bullmq", "--upstream", url], "--max-clients"),
        (&["proxy", "--report-every", "0s", "--with", "bullmq", "--upstream", url], "--report-every"),
        (&["clean", url, "--family", "chat.typing", "--repair-ttl", "--idle-hours", "1"], "--idle-hours"),
    ] {
        let output = schema(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}

#[test]
fn example_file_of_the_documentation_is_valid() {
    let page = include_str!("../../../../docs/schema.md");
    let (_, example) = page.split_once("```toml\n").unwrap();
    let (_folder, path) = declared(example.split_once("```").unwrap().0);
    assert!(stdout(&schema(&["lint", &path]), 3).contains("\n0 errors, "));
}

#[test]
fn error_is_printed_once() {
    let error = stderr_line(&schema(&["audit", "redis://127.0.0.1:1"]));
    assert_eq!(error.matches("127.0.0.1:1").count(), 1, "{error}");
}

/// A reader such as `head` may close its pipe early.
#[test]
fn closed_pipe_is_not_an_error() {
    let mut program = hob().args(["schema", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(program.stdout.take());
    assert_eq!(program.wait().unwrap().code(), Some(0));
}

#[test]
fn docs_are_written_to_a_new_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a/b");
    stdout(&schema(&["docs", "--out", out.to_str().unwrap()]), 0);
    assert!(out.join("chat.md").exists());
}

#[test]
fn findings_have_the_formats_of_ci_systems() {
    let redis = RedisServer::start();
    redis.command::<()>(&["SET", "app:session-1", "x"]);
    let (_folder, path) = declared(&SESSIONS.replace("max_keys = 100\n", ""));
    let (_other, new) = declared(&SESSIONS.replace("1h", "1m"));
    let url = redis.url();
    for (command, code, rule) in [
        (vec!["lint", &path], 3, "no-max-keys"),
        (vec!["diff", &path, &new], 4, "schema-breaking"),
        (vec!["audit", "--schema", &path, &url], 4, "missing-ttl"),
    ] {
        let report =
            |format: &str| stdout(&schema(&[command.as_slice(), &["--format", format]].concat()), code);
        let sarif: serde_json::Value = serde_json::from_str(&report("sarif")).unwrap();
        let rules: Vec<&str> = sarif["runs"][0]["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["ruleId"].as_str().unwrap())
            .collect();
        assert!(rules.contains(&rule), "{rules:?}");
        assert!(report("junit").contains(&format!("<failure type=\"{rule}\"")), "{}", report("junit"));
        assert!(report("github").contains(&format!("title={rule}::")), "{}", report("github"));
        assert!(serde_json::from_str::<serde_json::Value>(&report("json")).is_ok());
    }
}

/// A folder with a git repository that has the schema on its branch `main`, and a script that stands for the tests.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("schemas")).unwrap();
    std::fs::write(folder.path().join("schemas/app.toml"), SESSIONS).unwrap();
    let tests = "#!/bin/sh\nset -e\necho testing\nredis-cli -u \"$REDIS_URL\" SET app:session-1 x EX 60\n";
    std::fs::write(folder.path().join("run-tests.sh"), tests).unwrap();
    shell(
        folder.path(),
        "chmod +x run-tests.sh && git init --quiet --initial-branch main . && git add . && \
         git -c user.name=ci -c user.email=ci@example.com commit --quiet -m first",
        "",
        0,
    );
    folder
}

#[track_caller]
fn shell(folder: &std::path::Path, line: &str, redis_url: &str, code: i32) -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_hob")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = std::process::Command::new("sh")
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .env("REDIS_URL", redis_url)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{line}\n{out}\n{err}");
    out.into_owned()
}

/// Every command of docs/schema-ci.md runs, and succeeds for a project without mistakes.
#[test]
fn recipes_for_ci_run() {
    let (project, redis) = (project(), RedisServer::start());
    redis.command::<()>(&["SET", "app:session-1", "x"]);
    let page = include_str!("../../../../docs/schema-ci.md");
    let mut recipes = 0;
    let mut in_block = false;
    for line in page.lines() {
        in_block ^= line.starts_with("```");
        let line = line.trim_start().trim_start_matches("- ").trim_start_matches("run: ");
        if in_block && line.starts_with("hob schema") {
            shell(project.path(), line, &redis.url(), 0);
            recipes += 1;
        }
    }
    assert!(recipes >= 8, "{recipes} recipes");
}

#[test]
fn ci_fails_for_undeclared_keys_breaking_edits_and_failed_tests() {
    let project = project();
    let ci = |tests: &str, code: i32| {
        let line = format!("hob schema ci --schema schemas/app.toml --against git:main -- {tests}");
        shell(project.path(), &line, "", code)
    };
    let text = ci("sh -c 'redis-cli -u \"$REDIS_URL\" SET other:1 x'", 3);
    assert!(text.contains("other:<…>"), "{text}");
    ci("false", 1);
    let schema = project.path().join("schemas/app.toml");
    std::fs::write(&schema, SESSIONS.replace("1h", "1m")).unwrap();
    let text = ci("./run-tests.sh", 4);
    assert!(text.contains("breaking for writers, data: key.session"), "{text}");
    assert!(!text.contains("testing"), "the output of the tests goes to stderr: {text}");
    // A file that git does not have is new.
    std::fs::rename(&schema, project.path().join("schemas/new.toml")).unwrap();
    let line = "hob schema diff --against git:main schemas/new.toml";
    assert!(shell(project.path(), line, "", 0).contains("0 breaking"));
    shell(project.path(), "hob schema diff git:main:schemas/app.toml schemas/new.toml", "", 4);
    shell(project.path(), "hob schema diff --against git:nowhere schemas/new.toml", "", 1);
}
