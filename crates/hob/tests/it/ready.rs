//! Ready-made schemas, each against a real workload of its library on a real Redis.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use hob_testkit::{RedisServer, node_modules, python};

use crate::program::{hob, stderr_line};

fn schema(arguments: &[&str]) -> Output {
    hob().arg("schema").args(arguments).output().expect("cannot start hob")
}

#[track_caller]
fn stdout(output: &Output, code: i32) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    out.into_owned()
}

/// Runs a script of `tests/ready`, which leaves the keys of a library on the server.
#[track_caller]
fn work(script: &str, redis: &RedisServer, arguments: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ready");
    let mut command = match Path::new(script).extension().and_then(OsStr::to_str) {
        Some("js") => {
            let mut node = Command::new("node");
            node.env("NODE_PATH", node_modules()).env("NODE_NO_WARNINGS", "1");
            node
        }
        Some("rb") => Command::new("ruby"),
        Some("php") => Command::new("php"),
        _ => Command::new(python()),
    };
    command.env("PYTHONPATH", &folder).env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(folder.join(script)).arg(redis.port().to_string()).args(arguments);
    let output = command.output().expect("cannot start the script");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.trim_end().ends_with("done"), "{script}: {out}{err}");
}

/// The workload leaves keys of at least so many families, and all of them match.
#[track_caller]
fn audited(name: &str, families: usize, script: &str, arguments: &[&str]) -> RedisServer {
    let redis = RedisServer::start();
    work(script, &redis, arguments);
    let report = stdout(&schema(&["audit", "--with", name, &redis.url()]), 0);
    assert!(report.contains("all keys match the schemas"), "{report}");
    let name = name.split('=').next().unwrap_or(name);
    let prefix = format!("{}.", name.replace('-', "_"));
    let used = report.lines().take_while(|line| !line.starts_with("biggest keys"));
    let used = used.filter(|line| line.starts_with(&prefix)).count();
    assert!(used >= families, "{used} families: {report}");
    redis
}

#[test]
fn list_says_what_each_schema_is_based_on() {
    let list = stdout(&schema(&["ready"]), 0);
    let line =
        |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{list}"));
    assert!(line("bullmq ").contains("Checked against bullmq"), "{list}");
    assert!(line("spring-session ").contains("From its documentation"), "{list}");
    assert!(line("hob ").contains("Hob"), "{list}");
    let text = stdout(&schema(&["ready", "connect-redis"]), 0);
    assert!(text.contains("name    = \"connect_redis\""), "{text}");
    let redis = RedisServer::start();
    assert!(stderr_line(&schema(&["audit", "--with", "nope", &redis.url()])).contains("hob schema ready"));
}

#[test]
fn several_schemas_and_an_own_file_are_audited_together() {
    let redis = RedisServer::start();
    redis.command::<()>(&["SET", "app:rl:10.0.0.1", "3", "EX", "60"]);
    redis.command::<()>(&["SET", "locks:a", "token", "EX", "60"]);
    redis.command::<()>(&["SET", "user:1:online", "true"]);
    redis.command::<()>(&["SADD", "cart:1", "x"]);
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    let text = "[schema]\nname = \"mine\"\nversion = 1\n[ids]\ncart = {}\n[key.cart]\npattern = \"cart:<cart>\"\n\
                type = \"set\"\n";
    std::fs::write(&mine, text).unwrap();
    let (mine, url) = (mine.to_str().unwrap(), redis.url());
    let rate_limits = ["--with", "rate-limit-redis=app:rl:"];
    let arguments =
        [&["audit", "--with", "hob", "--with", "redlock", "--schema", mine][..], &rate_limits, &[&url]]
            .concat();
    assert!(stdout(&schema(&arguments), 0).contains("all keys match the schemas"));
    // Without its prefix, the key of the rate limit is unknown.
    let arguments = ["audit", "--with", "rate-limit-redis", "--with", "hob", "--schema", mine, &url];
    assert!(stdout(&schema(&arguments), 3).contains("app"), "undeclared");
}

mod slow {
    use super::*;

    #[test]
    fn bullmq_is_clean() {
        audited("bullmq", 20, "bullmq.js", &[]);
    }

    /// Its documentation recommends a hash tag for a Cluster.
    #[test]
    fn bullmq_with_a_hash_tag_is_clean_and_recognized() {
        let redis = audited("bullmq={bull}:", 20, "bullmq.js", &["{bull}"]);
        let proposal = stdout(&schema(&["infer", &redis.url()]), 0);
        assert!(proposal.contains(" keys of bullmq={bull}:"), "{proposal}");
        assert!(!proposal.contains("[key."), "{proposal}");
    }

    #[test]
    fn celery_is_clean() {
        audited("celery", 8, "celery_app.py", &[]);
    }

    #[test]
    fn rq_is_clean() {
        audited("rq", 12, "rq_app.py", &[]);
    }

    #[test]
    fn connect_redis_is_clean() {
        audited("connect-redis", 1, "connect_redis.js", &[]);
    }

    #[test]
    fn django_redis_is_clean() {
        audited("django-redis", 1, "django_redis_app.py", &[]);
    }

    #[test]
    fn redlock_is_clean() {
        audited("redlock", 1, "redlock_app.js", &[]);
    }

    #[test]
    fn rate_limit_redis_is_clean() {
        audited("rate-limit-redis", 1, "rate_limit_redis.js", &[]);
    }

    /// It has only channels; the audit shows that it leaves no keys.
    #[test]
    fn socket_io_is_clean() {
        audited("socket-io", 0, "socket_io.js", &[]);
    }

    #[test]
    fn socket_io_streams_is_clean() {
        audited("socket-io-streams", 1, "socket_io.js", &["streams"]);
    }

    #[test]
    fn sidekiq_is_clean() {
        audited("sidekiq", 11, "sidekiq_app.rb", &[]);
    }

    #[test]
    fn rails_cache_is_clean() {
        audited("rails-cache", 1, "rails_cache.rb", &[]);
    }

    #[test]
    fn laravel_is_clean() {
        audited("laravel", 5, "laravel_app.php", &[]);
    }

    #[test]
    fn infer_recognizes_libraries_and_proposes_the_rest() {
        let redis = RedisServer::start();
        work("bullmq.js", &redis, &[]);
        work("connect_redis.js", &redis, &[]);
        for user in 0..20 {
            redis.command::<()>(&["HSET", &format!("profile:{user}"), "name", "x"]);
        }
        let proposal = stdout(&schema(&["infer", &redis.url()]), 0);
        assert!(proposal.contains("3 keys of connect-redis"), "{proposal}");
        assert!(proposal.contains(" keys of bullmq"), "{proposal}");
        assert!(!proposal.contains("bull:") && !proposal.contains("sess:"), "{proposal}");
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join("mine.toml");
        std::fs::write(&mine, &proposal).unwrap();
        let (mine, url) = (mine.to_str().unwrap(), redis.url());
        let arguments = ["audit", "--schema", mine, "--with", "bullmq", "--with", "connect-redis", &url];
        assert!(stdout(&schema(&arguments), 0).contains("all keys match the schemas"));
    }
}
