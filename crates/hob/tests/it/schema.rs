//! `hob schema` on real Redis servers.

use std::process::Output;

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
    stdout(&schema(&known), 0);
    redis.command::<()>(&["LPUSH", "user:43:online", "x"]);
    let text = stdout(&schema(&known), 4);
    assert!(text.contains("chat.online"), "{text}");
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
    assert!(text.contains("1 keys on 1 server"), "{text}");
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
