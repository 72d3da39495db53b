//! Values that are wrong: `hob config check` and `hob serve` report each once, with file, line and field.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::program::hob;

/// A section, a line of it, and the value that is wrong, as it is reported.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("node", r#"name = "a b""#, "name"),
    ("redis", r#"url = "http://a""#, "url"),
    ("redis", r#"url = "redis://a:99999""#, "url"),
    ("redis", r#"embedded_listen = "127.0.0.1:99999""#, "embedded_listen"),
    ("redis", "embedded_memory_mib = 0", "embedded_memory_mib"),
    ("database", r#"url = """#, "url"),
    ("database", r#"url = "mysql://a""#, "url"),
    ("database", r#"backup_folder = """#, "backup_folder"),
    ("server", r#"listen = "127.0.0.1:99999""#, "listen"),
    ("server", r#"listen = "localhost""#, "listen"),
    ("server", r#"hosts = ["a.example", "https://b.example"]"#, "hosts[1]"),
    ("server", r#"trusted_proxies = ["10.0.0.0/99"]"#, "trusted_proxies[0]"),
    ("server", r#"tls_certificate = "a.pem""#, "tls_certificate"),
    ("server", r#"tls_key = "a.pem""#, "tls_key"),
    ("server", r#"admin_token = "hunter2""#, "admin_token"),
    ("server", "max_connections = 0", "max_connections"),
    ("server", "max_requests = 0", "max_requests"),
    ("server", "max_body_kib = 0", "max_body_kib"),
    ("server", r#"header_timeout = "0s""#, "header_timeout"),
    ("server", r#"request_timeout = "0s""#, "request_timeout"),
    ("server", r#"write_timeout = "0s""#, "write_timeout"),
    ("server", r#"drain_timeout = "soon""#, "drain_timeout"),
    ("server", r#"session_ttl = "0s""#, "session_ttl"),
    ("server", r#"keep_audit_log = "0d""#, "keep_audit_log"),
    ("outbound", r#"allow = ["10.0.0.0/8", "10.0.0.0/99"]"#, "allow[1]"),
    ("tracing", r#"endpoint = "collector:4318""#, "endpoint"),
    ("tracing", r#"endpoint = "https://user:hunter2@collector""#, "endpoint"),
    ("tracing", r#"headers = "api-key=hunter2""#, "headers"),
    ("tracing", "sample_ratio = 1.5", "sample_ratio"),
    ("tracing", "sample_ratio = -0.5", "sample_ratio"),
    ("tracing", "sample_ratio = nan", "sample_ratio"),
    ("tracing", r#"service_name = """#, "service_name"),
    ("gateway", r#"listen = "127.0.0.1:99999""#, "listen"),
    ("gateway", r#"upstream = ["ftp://x"]"#, "upstream[0]"),
    ("gateway", r#"upstream = ["http://a:1", "http://a:99999"]"#, "upstream[1]"),
    ("gateway", r#"upstream = ["http://a/path"]"#, "upstream[0]"),
    ("gateway", r#"health_path = "healthz""#, "health_path"),
    ("gateway", r#"health_path = "/a b""#, "health_path"),
    ("gateway", r#"health_path = "/a#b""#, "health_path"),
    ("gateway", r#"health_interval = "0s""#, "health_interval"),
    ("gateway", r#"tls_key = "a.pem""#, "tls_key"),
    ("gateway", r#"connect_timeout = "0s""#, "connect_timeout"),
    ("gateway", r#"response_timeout = "0s""#, "response_timeout"),
    ("gateway", r#"upgrades = ["web socket"]"#, "upgrades[0]"),
    ("gateway", "max_connections = 0", "max_connections"),
    ("gateway", r#"header_timeout = "0s""#, "header_timeout"),
    ("gateway", r#"write_timeout = "0s""#, "write_timeout"),
    ("gateway", r#"trusted_proxies = ["10.0.0.0/99"]"#, "trusted_proxies[0]"),
    ("gateway", r#"routes = ["users"]"#, "routes[0]"),
    ("gateway", r#"instance = """#, "instance"),
    ("gateway", r#"checkpoint_interval = "0s""#, "checkpoint_interval"),
    ("gateway", r#"allow = ["10.0.0.1", "not an ip"]"#, "allow[1]"),
    ("gateway", r#"deny = ["10.0.0.0/99"]"#, "deny[0]"),
    ("gateway", r#"store_timeout = "0s""#, "store_timeout"),
    ("gateway", r#"rules = [{ name = "a", windows = "banana" }]"#, "rules[0].windows"),
    ("gateway", r#"rules = [{ name = "a", windows = "" }]"#, "rules[0].windows"),
    ("gateway", r#"rules = [{ name = "a", windows = "0/1s" }]"#, "rules[0].windows"),
    ("gateway", r#"rules = [{ name = "a", windows = "1/0s" }]"#, "rules[0].windows"),
    ("gateway", r#"rules = [{ name = "a b", windows = "1/1s" }]"#, "rules[0].name"),
    (
        "gateway",
        r#"rules = [{ name = "a", windows = "1/1s" }, { name = "a", windows = "2/1s" }]"#,
        "rules[1].name",
    ),
    ("gateway", r#"rules = [{ name = "a", windows = "1/1s", cost = 0 }]"#, "rules[0].cost"),
    ("gateway", r#"rules = [{ name = "a", windows = "1/1s", by = "moon" }]"#, "rules[0].by"),
    ("gateway", r#"rules = [{ name = "a", windows = "1/1s", route = "users" }]"#, "rules[0].route"),
    ("gateway", r#"rules = [{ name = "a", windows = "1/1s", methods = ["GE T"] }]"#, "rules[0].methods"),
    (
        "gateway",
        r#"rules = [{ name = "a", windows = "9/1s", exactness = "leased", lease = "0s" }]"#,
        "rules[0].lease",
    ),
    ("gateway", r#"rules = [{ name = "a" }]"#, "rules[0]"),
    ("uptime", r#"grace = "0s""#, "grace"),
    ("uptime", r#"keep_results = "0s""#, "keep_results"),
    ("uptime", r#"keep_hours = "0s""#, "keep_hours"),
    ("uptime", r#"keep_days = "0s""#, "keep_days"),
    ("uptime", r#"connectivity_targets = ["foo"]"#, "connectivity_targets[0]"),
    ("uptime", r#"connectivity_targets = ["a.example:443", "foo:99999"]"#, "connectivity_targets[1]"),
    ("uptime", "max_body_kib = 0", "max_body_kib"),
    ("uptime", r#"name_server = "10.0.0.1""#, "name_server"),
    ("uptime", r#"name_server = "10.0.0.1:0""#, "name_server"),
    ("uptime", r#"mail_from = "gnomes""#, "mail_from"),
    ("uptime", "alert_attempts = 0", "alert_attempts"),
    ("uptime", r#"alert_backoff = "0s""#, "alert_backoff"),
    ("uptime", r#"alert_timeout = "0s""#, "alert_timeout"),
    ("chat", r#"origins = ["shop.example"]"#, "origins[0]"),
    ("chat", "message_rate_limit = 0", "message_rate_limit"),
    ("chat", r#"message_rate_window = "0s""#, "message_rate_window"),
    ("chat", "connects_per_minute = 0", "connects_per_minute"),
    ("chat", "commands_per_second = 0", "commands_per_second"),
    ("chat", "max_connections = 0", "max_connections"),
    ("chat", "channels_per_connection = 0", "channels_per_connection"),
    ("chat", "max_frame_bytes = 0", "max_frame_bytes"),
    ("chat", "queue_bytes = 0", "queue_bytes"),
    ("chat", r#"ping_interval = "0s""#, "ping_interval"),
    ("chat", r#"node_lease = "0s""#, "node_lease"),
    ("load", r#"hosts = ["a.example:80"]"#, "hosts[0]"),
    ("load", "max_rate = 0", "max_rate"),
    ("load", "max_users = 0", "max_users"),
    ("load", "threads = 65", "threads"),
    ("load", r#"lease = "0s""#, "lease"),
    ("load", r#"aging_interval = "0s""#, "aging_interval"),
    ("load", r#"keep_results = "0s""#, "keep_results"),
    ("pipeline", r#"public_quota = "a b""#, "public_quota"),
    ("pipeline", "call_limit_per_hour = 0", "call_limit_per_hour"),
    ("pipeline", "call_limit_per_hour = 100001", "call_limit_per_hour"),
    ("pipeline", "safety_buffer = 100000", "safety_buffer"),
    ("pipeline", r#"folder = """#, "folder"),
    ("pipeline", "batch_size = 0", "batch_size"),
    ("pipeline", r#"lease = "0s""#, "lease"),
    ("pipeline", r#"keep_calls = "0s""#, "keep_calls"),
    ("pipeline", r#"keep_archived = "0s""#, "keep_archived"),
];

/// Files are read only if all values are right.
const FILES: &[(&str, &str, &str)] = &[
    ("uptime", r#"ca_file = "missing.pem""#, "ca_file"),
    ("uptime", r#"smtp = "file:missing""#, "smtp"),
    ("chat", r#"token_secret = "file:missing""#, "token_secret"),
    ("chat", r#"token_public_keys = ["missing.pem"]"#, "token_public_keys[0]"),
];

fn in_folder(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hob.toml"), text).unwrap();
    folder
}

/// The lines on stderr of `hob config check` and of `hob serve`, which both fail.
fn refused(text: &str, variables: &[(&str, &str)]) -> [Vec<String>; 2] {
    let folder = in_folder(text);
    [["config", "check"].as_slice(), &["serve", "--listen", "127.0.0.1:0"]].map(|arguments| {
        let mut command: Command = hob();
        command.current_dir(&folder).args(arguments).envs(variables.iter().copied());
        let output: Output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?} accepts {text}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        stderr.lines().map(str::to_owned).collect()
    })
}

/// Reports all mistakes at once, for files with at most one mistake per setting.
#[test]
fn every_wrong_value_is_refused_with_its_line_and_field() {
    let mut waiting: Vec<&(&str, &str, &str)> = MISTAKES.iter().collect();
    while !waiting.is_empty() {
        let mut settings = BTreeSet::new();
        // A certificate and a key that are both there are a pair.
        let key = |line: &str| {
            line.split(' ').next().unwrap().split("tls_").last().unwrap().replace("certificate", "key")
        };
        let (now, later): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(section, line, _)| settings.insert((*section, key(line))));
        assert_refused(&now);
        waiting = later;
    }
    assert_refused(&FILES.iter().collect::<Vec<_>>());
}

fn assert_refused(mistakes: &[&(&str, &str, &str)]) {
    let (mut text, mut expected) = (String::new(), Vec::new());
    for (index, (section, line, field)) in mistakes.iter().enumerate() {
        if index == 0 || mistakes[index - 1].0 != *section {
            text += &format!("[{section}]\n");
        }
        text += &format!("{line}\n");
        expected.push((text.lines().count(), format!("[{section}] {field}: ")));
    }
    for lines in refused(&text, &[]) {
        for (number, start) in &expected {
            let place = format!("hob: hob.toml:{number}:");
            let here = lines.iter().filter(|line| line.starts_with(&place) && line.contains(start.as_str()));
            assert_eq!(here.count(), 1, "{start} in line {number}: {lines:#?}\n{text}");
        }
        assert_eq!(lines.len(), expected.len(), "{lines:#?}\n{text}");
        assert!(!lines.concat().contains("hunter2"), "{lines:#?}");
    }
}

#[test]
fn wrong_values_of_variables_are_reported_under_their_names() {
    let variables = [
        ("HOB_GATEWAY_DENY", r#"["10.0.0.0/99"]"#),
        ("HOB_GATEWAY_HEALTH_INTERVAL", "0s"),
        ("HOB_LISTEN", "here"),
        ("MESSAGE_RATE_LIMIT", "0"),
        ("REDIS_COUNTER_TTL_HOURS", "soon"),
    ];
    for lines in refused("[chat]\nmax_connections = 0\n", &variables) {
        for (name, _) in variables {
            assert_eq!(
                lines.iter().filter(|line| line.starts_with(&format!("hob: {name}: "))).count(),
                1,
                "{lines:#?}"
            );
        }
        assert!(lines.iter().any(|line| line.starts_with("hob: hob.toml:2:19: [chat] max_connections: ")));
        assert_eq!(lines.len(), variables.len() + 1, "{lines:#?}");
    }
}

#[test]
fn role_with_the_scope_of_an_unknown_service_is_refused() {
    let text = "[sign_in.oidc]\nissuer = \"https://login.example.com\"\nclient_id = \"hob\"\n\
        redirect_url = \"https://hob.example.com/sign-in/oidc/callback\"\n\
        roles = [{ group = \"a\", role = \"viewer\" }, { group = \"b\", scopes = [\"chat:read\", \"chatt:read\"] }]\n";
    for lines in refused(text, &[]) {
        let [only] = lines.as_slice() else { panic!("{lines:#?}") };
        let expected = "[sign_in] oidc.roles[1].scopes[1]: unknown service \"chatt\"; services: gateway, ";
        assert!(only.starts_with("hob: hob.toml:5:") && only.contains(expected), "{only}");
    }
}

/// A plain address is a network of one address.
#[test]
fn plain_address_is_accepted_as_a_network() {
    let folder = in_folder(
        "[server]\ntrusted_proxies = [\"10.0.0.1\"]\n[outbound]\nallow = [\"::1\"]\n[gateway]\n\
         trusted_proxies = [\"10.0.0.1\", \"10.1.0.0/16\"]\nallow = [\"10.0.0.1\"]\ndeny = [\"2001:db8::1\"]\n",
    );
    let output = hob().current_dir(&folder).args(["config", "check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn safety_buffer_that_leaves_no_calls_is_refused() {
    for lines in refused("[pipeline]\ncall_limit_per_hour = 100\nsafety_buffer = 100\n", &[]) {
        let [only] = lines.as_slice() else { panic!("{lines:#?}") };
        let expected = "[pipeline] safety_buffer: must be less than call_limit_per_hour, which is 100";
        assert!(only.starts_with("hob: hob.toml:3:") && only.ends_with(expected), "{only}");
    }
}

/// Both listeners need the token. `hob serve` refuses the one that its flags do not replace.
#[test]
fn public_address_without_an_admin_token_is_refused_with_its_line() {
    for (section, key) in [("server", "listen"), ("redis", "embedded_listen")] {
        let folder = in_folder(&format!("[{section}]\n{key} = \"0.0.0.0:0\"\n"));
        for arguments in [&["config", "check"][..], &["serve"]] {
            let output = hob().current_dir(&folder).args(arguments).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            assert!(stderr.starts_with("hob: hob.toml:2:"), "{stderr}");
            assert!(
                stderr.contains(&format!("[{section}] {key}: ")) && stderr.contains("admin token"),
                "{stderr}"
            );
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
    let weak = in_folder(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_token = \"file:weak\"\n[uptime]\nca_file = \"none.pem\"\n",
    );
    std::fs::write(weak.path().join("weak"), "hunter2").unwrap();
    let output = hob().current_dir(&weak).args(["config", "check"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(stderr.contains("hob.toml:3:") && stderr.contains("hob.toml:5:"), "{stderr}");
    assert!(!stderr.contains("hunter2"), "{stderr}");
}
