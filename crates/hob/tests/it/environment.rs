//! Environment variables: which setting each one sets, in which order of precedence, and how they are shown.

use std::process::Output;

use tempfile::TempDir;

use crate::contract::{Deployment, Settings, Store};
use crate::program::{Server, hob, stderr_line};

struct Folder(TempDir);

impl Folder {
    /// A folder with a `hob.toml`.
    fn with_file(text: &str) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hob.toml"), text).unwrap();
        Folder(folder)
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        hob().current_dir(&self.0).args(arguments).envs(variables.iter().copied()).output().unwrap()
    }

    fn show(&self, variables: &[(&str, &str)]) -> String {
        let output = self.run(&["config", "show"], variables);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The value and the origin of a setting in the output of `hob config show`.
#[track_caller]
fn setting(shown: &str, section: &str, key: &str) -> (String, String) {
    let (_, rest) = shown.split_once(&format!("[{section}]\n")).unwrap_or_else(|| panic!("{shown}"));
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    let line = lines.into_iter().find(|line| line.starts_with(&format!("{key} = "))).unwrap_or_default();
    let (value, origin) = line.rsplit_once("  # ").unwrap_or_else(|| panic!("{key} is missing in\n{shown}"));
    (value[key.len() + 3..].trim().to_owned(), origin.to_owned())
}

#[track_caller]
fn assert_setting(shown: &str, section: &str, key: &str, value: &str, origin: &str) {
    assert_eq!(setting(shown, section, key), (value.to_owned(), origin.to_owned()), "{shown}");
}

#[test]
fn every_setting_of_every_section_has_a_variable() {
    let folder = Folder::with_file("[server]\nmax_requests = 7\n");
    let shown = folder.show(&[]);
    let mut section = String::new();
    let mut sections = 0;
    let mut variables = Vec::new();
    for line in shown.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
            sections += 1;
        } else if let Some((key, value)) = line.split_once(" = ").filter(|(key, _)| !key.contains(' ')) {
            let value = value.rsplit_once("  # ").unwrap().0.trim().to_owned();
            variables.push((section.clone(), key.to_owned(), value));
        }
    }
    assert!(sections >= 10 && variables.len() > 50, "{shown}");
    let environment: Vec<(String, String)> = variables
        .iter()
        .map(|(section, key, value)| (format!("HOB_{section}_{key}").to_uppercase(), value.clone()))
        .collect();
    let pairs: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    let shown = folder.show(&pairs);
    for ((section, key, value), (name, _)) in variables.iter().zip(&environment) {
        assert_setting(&shown, section, key, value, &format!("environment {name}"));
    }
    assert_eq!(folder.run(&["config", "check"], &pairs).stdout, b"hob.toml: OK\n");
}

#[test]
fn documented_names_set_their_settings() {
    let folder = Folder::with_file("");
    for (name, text, section, key, value) in [
        ("HOB_NODE", "a", "node", "name", "\"a\""),
        ("HOB_LISTEN", "127.0.0.1:7171", "server", "listen", "\"127.0.0.1:7171\""),
        ("HOB_EMBEDDED_LISTEN", "127.0.0.1:7172", "redis", "embedded_listen", "\"127.0.0.1:7172\""),
        ("HOB_EMBEDDED_MEMORY_MIB", "64", "redis", "embedded_memory_mib", "64"),
        ("HOB_REDIS_URL", "redis://a", "redis", "url", "\"redis://a\""),
        ("REDIS_URL", "redis://a", "redis", "url", "\"redis://a\""),
        ("REDIS_HOST", "a", "redis", "url", "\"redis://a:6379\""),
        ("REDIS_PORT", "7", "redis", "url", "\"redis://localhost:7\""),
        ("REDIS_PASSWORD", "p@ss/word", "redis", "url", "\"redis://…@localhost:6379\""),
        ("HOB_DATABASE_URL", "a.db", "database", "url", "\"a.db\""),
        ("DATABASE_URL", "postgres://u:p@h/d", "database", "url", "\"postgres://…@h/d\""),
        ("HOB_ADMIN_TOKEN", "an unguessable admin token", "server", "admin_token", "\"env:HOB_ADMIN_TOKEN\""),
        ("MESSAGE_RATE_LIMIT", "3", "chat", "message_rate_limit", "3"),
        ("HOB_CHAT_MESSAGE_RATE_LIMIT", "3", "chat", "message_rate_limit", "3"),
        // P8
        ("CALL_LIMIT_PER_HOUR", "100", "pipeline", "call_limit_per_hour", "100"),
        ("COURTLISTENER_SAFETY_BUFFER", "5", "pipeline", "safety_buffer", "5"),
        ("pm_id", "3", "gateway", "instance", "\"3\""),
        ("MESSAGE_RATE_WINDOW", "1500", "chat", "message_rate_window", "\"1s 500ms\""),
        ("MESSAGE_RATE_WINDOW", "2m", "chat", "message_rate_window", "\"2m\""),
    ] {
        let shown = folder.show(&[(name, text)]);
        assert_setting(&shown, section, key, value, &format!("environment {name}"));
        assert!(!shown.contains("a secret") && !shown.contains("p@ss") && !shown.contains("p%40"), "{shown}");
    }
    let combined = folder.show(&[("REDIS_HOST", "::1"), ("REDIS_PORT", "7"), ("REDIS_PASSWORD", "x")]);
    let origin = "environment REDIS_HOST, REDIS_PORT, REDIS_PASSWORD";
    assert_setting(&combined, "redis", "url", "\"redis://…@[::1]:7\"", origin);
}

#[test]
fn hob_variable_wins_over_the_file_and_the_file_over_other_names() {
    let folder = Folder::with_file("\n[redis]\nurl = \"redis://file\"\n\n[chat]\nmessage_rate_limit = 5\n");
    let others = [("REDIS_URL", "redis://other"), ("REDIS_HOST", "third"), ("MESSAGE_RATE_LIMIT", "6")];
    let shown = folder.show(&others);
    assert_setting(&shown, "redis", "url", "\"redis://file\"", "hob.toml:3");
    assert_setting(&shown, "chat", "message_rate_limit", "5", "hob.toml:6");
    let ours = [("HOB_REDIS_URL", "redis://ours"), ("HOB_CHAT_MESSAGE_RATE_LIMIT", "7")];
    let shown = folder.show(&[&others[..], &ours].concat());
    assert_setting(&shown, "redis", "url", "\"redis://ours\"", "environment HOB_REDIS_URL");
    assert_setting(&shown, "chat", "message_rate_limit", "7", "environment HOB_CHAT_MESSAGE_RATE_LIMIT");
    let shown = Folder::with_file("").show(&others);
    assert_setting(&shown, "redis", "url", "\"redis://other\"", "environment REDIS_URL");
}

/// Kubernetes sets `REDIS_PORT=tcp://10.0.0.1:6379` in every pod of a namespace that has a Service named `redis`.
#[test]
fn port_from_kubernetes_is_ignored() {
    let folder = Folder::with_file("");
    assert!(folder.show(&[("REDIS_PORT", "tcp://10.0.0.1:6379")]).contains("# url is not set"));
    let error = stderr_line(&folder.run(&["config", "check"], &[("REDIS_PORT", "seven")]));
    assert!(error.starts_with("hob: REDIS_PORT: "), "{error}");
}

#[test]
fn wrong_value_is_reported_under_the_name_that_was_used() {
    let folder = Folder::with_file("");
    for (name, text) in [
        ("HOB_LISTEN", "here"),
        ("HOB_SERVER_LISTEN", "here"),
        ("MESSAGE_RATE_LIMIT", "many"),
        ("MESSAGE_RATE_WINDOW", "long"),
        ("REDIS_COUNTER_TTL_HOURS", "soon"),
    ] {
        let error = stderr_line(&folder.run(&["config", "check"], &[(name, text)]));
        assert!(error.starts_with(&format!("hob: {name}")), "{error}");
    }
}

#[test]
fn unknown_hob_variable_is_a_warning() {
    let folder = Folder::with_file(
        "[secrets.hook]\nfrom = \"env:HOB_HOOK\"\nfor = [\"uptime\"]\nhosts = [\"a.example\"]\n",
    );
    let variables =
        [("HOB_LISTN", "127.0.0.1:1"), ("HOB_HOOK", "x"), ("HOB_LOG", "warn"), ("HOB_KEY_PREFIX", "a:")];
    let check = folder.run(&["config", "check"], &variables);
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    assert_eq!(text, "hob.toml: OK\nwarning: unknown environment variable HOB_LISTN\n");
    assert_eq!(check.status.code(), Some(3));
    let doctor = folder.run(&["doctor"], &variables);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(text.contains("unknown environment variable HOB_LISTN"), "{text}");
    assert!(!text.contains("HOB_HOOK"), "{text}");
}

#[test]
fn unknown_hob_variable_is_logged_at_the_start() {
    let server = Server::launch("127.0.0.1:0", |command| {
        let folder = command.get_current_dir().unwrap().to_owned();
        command.env("HOB_LISTN", "x").stderr(std::fs::File::create(folder.join("log")).unwrap())
    });
    // The log is written by another thread.
    hob_testkit::wait_until("the warning in the log", || {
        let log = server.log();
        let is_logged = log.contains("unknown environment variable ignored") && log.contains("HOB_LISTN");
        if is_logged { Ok(()) } else { Err(log) }
    });
}

/// C6, P1, P3: variables of the key schemas have no setting in the file; `config show` lists them below the sections.
#[test]
fn variables_of_the_key_schemas_are_shown() {
    let shown = Folder::with_file("").show(&[("REDIS_KEY_PREFIX", "gw:")]);
    let line = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(line("REDIS_KEY_PREFIX").starts_with("# REDIS_KEY_PREFIX = \"gw:\""), "{shown}");
    assert!(line("REDIS_KEY_PREFIX").ends_with("# environment REDIS_KEY_PREFIX"), "{shown}");
    for name in ["HOB_KEY_PREFIX", "CHAT_KEY_PREFIX", "REDIS_COUNTER_TTL_HOURS", "NOTIFICATION_REDIS_CHANNEL"]
    {
        assert!(line(name).contains("default"), "{shown}");
    }
}

/// P8: the public quota has the documented limit minus the buffer.
#[test]
fn documented_call_limit_takes_effect() {
    let variables = [("CALL_LIMIT_PER_HOUR", "10"), ("COURTLISTENER_SAFETY_BUFFER", "7")];
    let server = Server::start_with(&["--only", "pipeline"], &variables);
    let granted: Vec<bool> = (0..4)
        .map(|_| {
            let response = server.post("/api/v1/quota/courtlistener/reserve", "{}");
            let answer: serde_json::Value = serde_json::from_str(&response.body).unwrap();
            answer["granted"].as_bool().unwrap()
        })
        .collect();
    assert_eq!(granted, [true, true, true, false]);
}

/// C6: the chat service applies the limit from the documented variable.
#[test]
fn documented_message_limit_takes_effect() {
    for name in ["MESSAGE_RATE_LIMIT", "HOB_CHAT_MESSAGE_RATE_LIMIT"] {
        let server = Server::start_with(&["--only", "chat"], &[(name, "2")]);
        let allowed: Vec<bool> = (0..3)
            .map(|_| {
                let response = server.post("/api/v1/chat/users/anna/limit", "{}");
                serde_json::from_str::<serde_json::Value>(&response.body).unwrap()["allowed"]
                    .as_bool()
                    .unwrap()
            })
            .collect();
        assert_eq!(allowed, [true, true, false], "{name}");
    }
}

#[test]
fn database_url_selects_the_database() {
    let server = Server::launch("127.0.0.1:0", |command| command.env("DATABASE_URL", "elsewhere/a.db"));
    assert!(server.folder.path().join("elsewhere/a.db").exists());
    assert!(!server.folder.path().join("hob-data").exists());
}

/// Waits for a key in the embedded store of a server.
fn wait_for_key(server: &Server, pattern: &str) {
    let port = server.store_port.expect("the embedded store does not listen");
    let mut store = redis::Client::open(("127.0.0.1", port)).unwrap().get_connection().unwrap();
    hob_testkit::wait_until(pattern, || {
        let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query(&mut store).unwrap();
        if keys.is_empty() { Err("no such key") } else { Ok(()) }
    });
}

/// Variables that change the documented keys, one by one, in the system that reads them.
#[test]
fn documented_variables_change_the_keys() {
    for (only, variable, text, pattern) in [
        ("gateway", "REDIS_KEY_PREFIX", "gw:", "gw:*"),
        ("uptime", "UPTIME_KEY_PREFIX", "up:", "up:*"),
        ("chat", "CHAT_KEY_PREFIX", "talk:", "talk:*"),
        ("gateway", "HOB_KEY_PREFIX", "house:", "house:*"),
    ] {
        let server = Server::start_with(&["--only", only], &[(variable, text)]);
        wait_for_key(&server, pattern);
    }
}

/// C14: the parts of the address select the server, with its password.
#[test]
fn parts_of_the_address_select_redis() {
    let options = hob_testkit::RedisOptions { password: Some("s3cret".into()), ..Default::default() };
    let redis = hob_testkit::RedisServer::start_with(&options);
    let port = redis.port().to_string();
    let variables = [("REDIS_HOST", "127.0.0.1"), ("REDIS_PORT", &*port), ("REDIS_PASSWORD", "s3cret")];
    let server = Server::start_with(&["--only", "gateway"], &variables);
    assert!(server.store_port.is_none(), "the embedded store does not run");
    hob_testkit::wait_until("the server to be ready", || {
        let response = server.get("/readyz");
        if response.status == 200 { Ok(()) } else { Err(response.body) }
    });
}

/// C6: the window of the documented limit, in milliseconds.
#[test]
fn documented_message_window_takes_effect() {
    let server = Server::start_with(
        &["--only", "chat"],
        &[("MESSAGE_RATE_LIMIT", "1"), ("MESSAGE_RATE_WINDOW", "3600000")],
    );
    server.post("/api/v1/chat/users/anna/limit", "{}");
    let response = server.post("/api/v1/chat/users/anna/limit", "{}");
    let body: serde_json::Value = serde_json::from_str(&response.body).unwrap();
    let wait_ms = body["retry_after_ms"].as_u64().unwrap_or_else(|| panic!("{body}"));
    // The default is one minute.
    assert!((60_001..=3_600_000).contains(&wait_ms), "{body}");
}

/// C10: the channel on which other services receive new messages.
#[test]
fn documented_notification_channel_takes_effect() {
    let settings = Settings::new("chat").variable("NOTIFICATION_REDIS_CHANNEL", "notify:messages");
    let deployment = Deployment::start_with(Store::Embedded, settings);
    let events = deployment.subscribe(&["notify:messages", "events:message.created"]);
    let room = r#"{"id": "conv123", "title": "Team", "created_by": "anna"}"#;
    assert_eq!(deployment.server.post("/api/v1/chat/conversations", room).status, 201);
    let message = r#"{"sender_id": "anna", "content": "Hello"}"#;
    let messages = "/api/v1/chat/conversations/conv123/messages";
    assert_eq!(deployment.server.post(messages, message).status, 201);
    let (channel, payload) = events.next();
    assert_eq!(channel, "notify:messages");
    assert!(payload.starts_with(r#"{"conversationId":"conv123","#), "{payload}");
}

/// The TTL of the only key with this prefix is this many hours. The hour may change during a test.
#[track_caller]
fn assert_ttl_hours(deployment: &Deployment, prefix: &str, hours: u64) {
    let keys: Vec<String> = deployment.run(&["KEYS", &format!("{prefix}*")]);
    assert!((1..=2).contains(&keys.len()), "{keys:?}");
    for key in &keys {
        deployment.assert_ttl(key, hours * 3600);
    }
}

/// P1, P2: how long the counters of an hour are kept.
#[test]
fn documented_counter_ttl_takes_effect() {
    let settings = Settings::new("pipeline").variable("REDIS_COUNTER_TTL_HOURS", "5");
    let deployment = Deployment::start_with(Store::Embedded, settings);
    assert_eq!(deployment.server.post("/api/v1/quota/courtlistener/reserve", "{}").status, 200);
    for family in ["courtlistener:rate_limit:", "courtlistener:counter:"] {
        assert_ttl_hours(&deployment, family, 5);
    }
}

/// P3, P5: how long the state of a run is kept, and, with the counters, the list of its failures.
#[test]
fn documented_state_ttl_takes_effect() {
    let settings = Settings::new("pipeline").variable("REDIS_STATE_TTL_HOURS", "30");
    let settings = settings.variable("REDIS_COUNTER_TTL_HOURS", "5");
    let deployment = Deployment::start_with(Store::Embedded, settings);
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let plan = format!(
        "name = \"dockets\"\nquota = {{ name = \"courtlistener\", windows = \"1000/1h\" }}\n\
         [source]\nstep = \"docket\"\nlist = [\"1\"]\n[step.docket]\nget = \"http://{refused}/${{key}}\"\n\
         [retry]\nnetwork = {{ attempts = 1 }}\n"
    );
    let plan = serde_json::json!({ "source": plan }).to_string();
    let saved = deployment.server.post("/api/v1/pipelines", &plan);
    assert_eq!(saved.status, 201, "{}", saved.body);
    let started = deployment.server.post("/api/v1/pipelines/dockets/runs", r#"{"id": "first"}"#);
    assert_eq!(started.status, 201, "{}", started.body);
    // The views are written one after the other.
    for view in ["courtlistener:failed:*", "courtlistener:pipeline:first"] {
        hob_testkit::wait_until(view, || {
            let keys: Vec<String> = deployment.run(&["KEYS", view]);
            !keys.is_empty()
        });
    }
    deployment.assert_ttl("courtlistener:pipeline:first", 30 * 3600);
    assert_ttl_hours(&deployment, "courtlistener:failed:", 5);
}
