//! `hob serve`.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use hob_testkit::{LIMIT, Postgres, RedisServer, wait_for};
use redis::Commands;
use rustix::process::Signal;

use crate::program::{Server, hob, send, stderr_line};

#[test]
fn serve_runs_without_redis_and_postgres() {
    let server = Server::start(&["--demo"]);
    assert_eq!(server.get("/healthz").body, "ok\n");
    assert_eq!(server.get("/readyz").status, 200);
    let port = server.store_port.expect("the embedded store does not listen");
    let client = redis::Client::open(("127.0.0.1", port)).unwrap();
    client.get_connection().unwrap().set::<_, _, ()>("greeting", "hello").unwrap();
    let page = server.get("/health");
    assert!(page.head.contains("text/html"), "{}", page.head);
    for part in ["Hob", "embedded", &format!("redis-cli -p {port}"), "Background tasks"] {
        assert!(page.body.contains(part), "{part} is missing in {}", page.body);
    }
    let metrics = server.get("/metrics");
    assert!(metrics.head.contains("text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(metrics.body.contains("\nhob_engine_keys "), "{}", metrics.body);
    assert!(metrics.body.contains("hob_store_"), "{}", metrics.body);
    assert_eq!(server.get("/nowhere").status, 404);
}

/// A 502 leaves a line in the log that says why; many of them leave few lines.
#[tokio::test]
async fn failed_upstream_requests_are_logged_with_the_reason() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // The socket does not listen, so connections are refused.
    let upstream = socket.local_addr().unwrap();
    let server = Server::start_configured(
        "127.0.0.1:0",
        &format!("[gateway]\nupstream = [\"http://{upstream}\"]\nretries = 0\n"),
    );
    let gateway = server.gateway.expect("the gateway does not listen");
    for _ in 0..20 {
        let request = "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";
        assert_eq!(send(gateway, request).unwrap().status, 502);
    }
    let lines = wait_for("the line in the log", LIMIT, async || {
        let log = server.log();
        let lines: Vec<String> =
            log.lines().filter(|line| line.contains("upstream request failed")).map(str::to_owned).collect();
        (!lines.is_empty()).then_some(lines)
    })
    .await;
    assert!(lines[0].contains("refused") && lines[0].contains(&upstream.to_string()), "{lines:?}");
}

/// The names, units and help texts of the metrics of all five services follow the Prometheus conventions.
#[tokio::test]
async fn promtool_accepts_all_metrics() {
    let server = Server::start(&["--demo"]);
    let expected = [
        "hob_gateway_requests_total",
        "hob_uptime_checks_total",
        "hob_chat_messages_total",
        "hob_load_requests_total",
        "hob_load_runs",
        "hob_pipeline_calls_total",
        "hob_http_request_seconds",
        "hob_store_operation_seconds",
    ];
    let text = wait_for("every service to export its metrics", LIMIT, async || {
        let text = server.get("/metrics").body;
        let missing = expected
            .into_iter()
            .filter(|name| !text.contains(&format!("# TYPE {name} ")))
            .collect::<Vec<_>>();
        if missing.is_empty() { Ok(text) } else { Err(missing) }
    })
    .await;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = promtool.spawn().expect("install the Debian package prometheus");
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{stderr}{}\n{text}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn sigterm_stops_the_server_cleanly() {
    let mut server = Server::start(&[]);
    assert_eq!(server.get("/healthz").status, 200);
    assert!(server.terminate().success());
}

#[tokio::test]
async fn readiness_follows_the_store_and_liveness_does_not() {
    let redis = RedisServer::start();
    let server = Server::start(&["--redis", &redis.url()]);
    server.wait_for_status("/readyz", 200).await;
    assert!(server.store_port.is_none(), "the embedded store does not run if Redis is configured");
    redis.kill();
    server.wait_for_status("/readyz", 503).await;
    let unready = server.get("/readyz");
    assert!(unready.head.contains("retry-after: 1"), "{}", unready.head);
    assert_eq!(server.get("/healthz").status, 200);
    assert!(server.get("/").body.contains("does not answer"));
    redis.restart();
    server.wait_for_status("/readyz", 200).await;
}

#[tokio::test]
async fn readiness_follows_the_database() {
    let postgres = Postgres::start();
    let server = Server::start(&["--database", &postgres.url()]);
    server.wait_for_status("/readyz", 200).await;
    assert!(!server.get("/").body.contains("database does not answer"));
    postgres.stop();
    server.wait_for_status("/readyz", 503).await;
    assert_eq!(server.get("/healthz").status, 200);
    postgres.restart();
    server.wait_for_status("/readyz", 200).await;
}

#[test]
fn node_with_another_database_refuses_to_share_the_store() {
    let redis = RedisServer::start();
    let first = Server::start(&["--redis", &redis.url()]);
    assert_eq!(first.get("/healthz").status, 200);
    let other_folder = tempfile::tempdir().unwrap();
    let mut other = hob();
    other.current_dir(&other_folder).env("HOB_LOG", "error");
    let other = other.args(["serve", "--listen", "127.0.0.1:0", "--redis", &redis.url()]).output().unwrap();
    let text = stderr_line(&other);
    assert!(text.starts_with("hob: this Redis belongs to another database"), "{text}");
}

#[tokio::test]
async fn sighup_reloads_the_configuration_and_rejects_mistakes() {
    let server = Server::start(&[]);
    let file = server.folder.path().join("hob.toml");
    let with_host = |host: &str| server.get_with(&format!("Host: {host}"), "/").status;
    assert_eq!(with_host("hob.example"), 421);
    std::fs::write(&file, "[server]\nhosts = [\"hob.example\"]\n").unwrap();
    server.hang_up();
    wait_for("the new host to be accepted", LIMIT, async || with_host("hob.example") == 200).await;
    std::fs::write(&file, "[server]\nhosts = 1\n").unwrap();
    server.hang_up();
    assert_eq!((with_host("hob.example"), server.get("/healthz").status), (200, 200));
}

/// Standard error may be a pipe without a reader, or a full pipe that is not read. Standard output has no reader either
/// after the first lines. SIGPIPE does not end the server.
#[test]
fn server_runs_while_its_log_cannot_be_written() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = Server::launch("127.0.0.1:0", |command| command.stderr(writer).env("HOB_LOG", "trace"));
    let (full, mut writer) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).unwrap();
    let unread = Server::launch("127.0.0.1:0", |command| command.stderr(writer).env("HOB_LOG", "trace"));
    for mut server in [closed, unread] {
        for _ in 0..100 {
            assert_eq!(server.get("/api/v1/tokens").status, 200);
            assert_eq!(server.get("/nowhere").status, 404);
        }
        server.signal(Signal::PIPE);
        assert_eq!(server.get("/healthz").status, 200);
        assert!(server.terminate().success());
    }
    drop(full);
}

/// A configuration file that was removed, emptied or only partly written is an error, and the previous settings stay in
/// effect: the server continues to require credentials.
#[tokio::test]
async fn reload_never_removes_authentication() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "a-token-that-is-long-enough\n").unwrap();
    let config = format!("[server]\nadmin_token = \"file:{}\"\n", token.display());
    let server = Server::start_configured("0.0.0.0:0", &config);
    let file = server.folder.path().join("hob.toml");
    let rejected =
        || server.log().matches("failed to reload the configuration, keeping the current one").count();
    let breaks: [(&str, &dyn Fn()); 6] = [
        ("emptied", &|| std::fs::write(&file, "").unwrap()),
        ("removed", &|| std::fs::remove_file(&file).unwrap()),
        ("only a comment", &|| std::fs::write(&file, "# soon\n[server]\n").unwrap()),
        ("partly written", &|| std::fs::write(&file, &config[..config.len() - 3]).unwrap()),
        ("without the token", &|| std::fs::write(&file, "[server]\nmax_requests = 7\n").unwrap()),
        ("on loopback without the token", &|| {
            std::fs::write(&file, "[server]\nlisten = \"127.0.0.1:7070\"\n").unwrap();
        }),
    ];
    for (number, (what, break_it)) in breaks.iter().enumerate() {
        break_it();
        server.hang_up();
        wait_for(format!("the reload to be rejected: {what}"), LIMIT, async || rejected() == number + 1)
            .await;
        assert_eq!(server.get("/api/v1/tokens").status, 401, "{what}");
        let created = server.post("/api/v1/tokens", r#"{"name": "x", "scopes": ["admin"]}"#);
        assert_eq!(created.status, 401, "{what}");
    }
    std::fs::write(&token, "another-token-that-is-long-enough\n").unwrap();
    std::fs::write(&file, format!("{config}hosts = [\"hob.example\"]\n")).unwrap();
    server.hang_up();
    let status =
        |token: &str| server.get_with(&format!("Authorization: Bearer {token}"), "/api/v1/tokens").status;
    wait_for("the new token to be accepted", LIMIT, async || {
        status("another-token-that-is-long-enough") == 200
    })
    .await;
    assert_eq!(status("a-token-that-is-long-enough"), 401, "the old token is no longer valid");
}

/// The port for Redis clients takes the new admin token after a reload, and disconnects clients of the old one.
#[tokio::test]
async fn reload_replaces_the_password_of_the_embedded_store() {
    let (old, new) = ("a-token-that-is-long-enough", "another-token-that-is-long-enough");
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, old).unwrap();
    let config = format!("[server]\nadmin_token = \"file:{}\"\n", token.display());
    let server = Server::start_configured("127.0.0.1:0", &config);
    let port = server.store_port.unwrap();
    let connect = |password: &str| {
        let client = redis::Client::open(format!("redis://:{password}@127.0.0.1:{port}")).unwrap();
        client.get_connection()
    };
    let mut connected = connect(old).unwrap();
    redis::cmd("PING").exec(&mut connected).unwrap();
    assert!(connect(new).is_err());

    std::fs::write(&token, new).unwrap();
    server.hang_up();
    wait_for("the new password to be accepted", LIMIT, async || connect(new).is_ok()).await;
    assert!(
        redis::cmd("PING").exec(&mut connected).is_err(),
        "the client of the old password is disconnected"
    );
    assert!(connect(old).is_err());
    assert!(redis::cmd("PING").exec(&mut connect(new).unwrap()).is_ok());
}

/// Redis clients, API clients and people who sign in share one limit of wrong credentials per address.
#[test]
fn wrong_credentials_are_limited_across_all_ports() {
    const TOKEN: &str = "a-token-that-is-long-enough";
    let server = Server::start_with(&[], &[("HOB_ADMIN_TOKEN", TOKEN)]);
    let port = server.store_port.unwrap();
    let connect = |password: &str| {
        let client = redis::Client::open(format!("redis://:{password}@127.0.0.1:{port}")).unwrap();
        client.get_connection().map(drop)
    };
    let bearer =
        |token: &str| server.get_with(&format!("Authorization: Bearer {token}"), "/api/v1/tokens").status;
    assert_eq!((connect(TOKEN).is_ok(), bearer(TOKEN)), (true, 200));
    for number in 0..5 {
        assert!(connect(&format!("guess-{number}")).is_err());
        assert_eq!(bearer(&format!("guess-{number}")), 401);
    }
    assert_eq!(bearer(TOKEN), 429);
    assert!(connect(TOKEN).is_err());
    assert_eq!(server.get("/healthz").status, 200, "public pages are not limited");
}

/// A server that listens on a public address does not connect to its own machine, unless the address is listed.
#[tokio::test]
async fn private_targets_are_refused_by_a_public_server() {
    const TOKEN: &str = "a-token-that-is-long-enough";
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let config = format!("[server]\nadmin_token = \"file:{}\"\n", token.display());
    let server = Server::start_configured("0.0.0.0:0", &config);
    let target = format!("127.0.0.1:{}", server.listen.port());
    let monitor = format!(r#"{{"name": "Own", "kind": "tcp", "target": "{target}", "interval_s": 3600}}"#);
    let added = server.post_as(TOKEN, "/api/v1/uptime/monitors", &monitor);
    let added: serde_json::Value = serde_json::from_str(&added.body).unwrap();
    let path = format!("/api/v1/uptime/monitors/{}/check", added["id"].as_str().unwrap());
    let wait_for_check = async |what: &str| {
        wait_for(format!("a check result with {what}"), LIMIT, async || {
            let body = server.post_as(TOKEN, &path, "{}").body;
            if body.contains(what) { Ok(()) } else { Err(body) }
        })
        .await;
    };
    wait_for_check("cannot connect to 127.0.0.1: loopback addresses are not allowed").await;
    let listed = format!("{config}[outbound]\nallow = [\"127.0.0.1\"]\n");
    std::fs::write(server.folder.path().join("hob.toml"), listed).unwrap();
    server.hang_up();
    wait_for_check("\"ok\":true").await;
}

#[test]
fn database_is_kept_except_in_a_demo() {
    let mut server = Server::start(&[]);
    assert!(server.folder.path().join("hob-data/hob.db").exists());
    assert!(server.terminate().success());
    let demo = Server::start(&["--demo"]);
    assert!(!demo.folder.path().join("hob-data").exists());
}

#[test]
fn startup_errors_are_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        stderr_line(&hob().current_dir(&folder).arg("serve").args(arguments).output().unwrap())
    };
    assert!(run(&["--listen", &taken]).starts_with(&format!("hob: cannot listen on {taken}: ")));
    let text = run(&["--listen", "127.0.0.1:0", "--embedded-listen", &taken]);
    assert!(text.starts_with(&format!("hob: cannot listen on {taken} for Redis clients: ")), "{text}");
    assert!(run(&["--listen", "0.0.0.0:0"]).contains("set HOB_ADMIN_TOKEN"));
    let mut weak = hob();
    weak.current_dir(&folder).args(["serve", "--listen", "127.0.0.1:0", "--embedded-listen", "127.0.0.1:0"]);
    let text = stderr_line(&weak.env("HOB_ADMIN_TOKEN", "twenty-three-characters").output().unwrap());
    assert!(text.contains("use at least 24 random characters, for example the output of"), "{text}");
    let text = run(&["--listen", "127.0.0.1:0", "--embedded-listen", "0.0.0.0:0"]);
    assert!(text.contains("set HOB_ADMIN_TOKEN") && text.contains("or use a loopback address"), "{text}");
    let text = run(&["--listen", "127.0.0.1:0", "--redis", "http://:secret@nowhere"]);
    assert!(text.starts_with("hob: [redis] url: ") && !text.contains("secret"), "{text}");
    let ports = ["--listen", "127.0.0.1:0", "--embedded-listen", "127.0.0.1:0", "--database"];
    let text = run(&[&ports[..], &["postgres://hob:secret@127.0.0.1:1/hob"]].concat());
    assert!(text.starts_with("hob: cannot open the database postgres://hob@127.0.0.1:1/hob: "), "{text}");
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "no file was created");
}

#[test]
fn demo_uses_a_free_port_if_its_own_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let server = Server::start_on(&taken.to_string(), &["--demo"]);
    assert_ne!(server.listen, taken);
    assert_eq!(server.get("/healthz").status, 200);
    assert_ne!(server.store_port, Some(taken.port()));
}

mod browser {
    use hob_testkit::fantoccini::{Client, Locator};
    use hob_testkit::page::{check_pages, wait_for_text};
    use hob_testkit::{Browser, Window};

    use super::Server;

    async fn links(client: &Client) -> Vec<String> {
        let mut links = Vec::new();
        for link in client.find_all(Locator::Css(".nav a")).await.unwrap() {
            links.push(link.attr("href").await.unwrap().unwrap());
        }
        links
    }

    #[tokio::test]
    async fn every_page_of_the_demo_is_readable() {
        let server = Server::start(&["--demo"]);
        let browser = Browser::start();
        let client = browser.open(Window::default()).await;
        client.goto(&server.url("/")).await.unwrap();
        let links = links(&client).await;
        client.close().await.unwrap();
        assert!(
            ["/", "/keys", "/health"].iter().all(|page| links.iter().any(|link| link == page)),
            "{links:?}"
        );
        let name = |link: &str| if link == "/" { "-overview".to_owned() } else { link.replace('/', "-") };
        let page = |link: &String| (format!("hob{}", name(link)), server.url(link));
        let pages: Vec<(String, String)> = links.iter().map(page).collect();
        check_pages(&browser, &pages).await;
    }

    /// P10
    #[tokio::test]
    async fn health_page_updates_itself() {
        let server = Server::start(&["--demo"]);
        let browser = Browser::start();
        let client = browser.open(Window::default()).await;
        client.goto(&server.url("/health")).await.unwrap();
        wait_for_text(&client, "#nodes", "this node").await;
        client.close().await.unwrap();
    }
}
