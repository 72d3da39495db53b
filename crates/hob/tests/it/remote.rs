//! Commands that talk to a server: the real binary, with a token, against a real server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use hob_pipeline::fake_api::{FakeApi, FakeApiConfig};
use hob_testkit::{Identity, LIMIT, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::program::{Server, hob, stderr_line};

const ADMIN: &str = "an unguessable admin token";

/// A server that requires a token, and a folder for the files of its client.
struct Setup {
    server: Server,
    folder: TempDir,
}

impl Setup {
    fn start(variables: &[(&str, &str)]) -> Setup {
        let mut all = vec![("HOB_ADMIN_TOKEN", ADMIN)];
        all.extend(variables);
        Setup { server: Server::start_with(&[], &all), folder: tempfile::tempdir().unwrap() }
    }

    /// A command in the folder of the client, which has no database.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = hob();
        command.current_dir(&self.folder).args(arguments);
        command.env("HOB_SERVER", self.server.url("")).env("HOB_TOKEN", ADMIN);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The output of a command that exits with this code.
    #[track_caller]
    fn output(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}{errors}");
        text.into_owned()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn monitors_are_applied_and_listed_on_a_server() {
    let setup = Setup::start(&[]);
    let target = setup.server.url("/healthz");
    setup.write(
        "m.yaml",
        &format!(
            "monitors:\n  self: {{name: Itself, kind: http, target: '{target}', interval_s: 1}}\n  \
             dead: {{name: Dead, kind: tcp, target: '127.0.0.1:1', interval_s: 1, retries: 0}}\n"
        ),
    );
    let added = setup.output(0, &["uptime", "apply", "m.yaml", "--dry-run"]);
    assert!(added.contains("+ dead  Dead tcp 127.0.0.1:1") && added.contains("2 to add"), "{added}");
    assert_eq!(setup.output(0, &["uptime", "apply", "m.yaml"]), added, "a dry run changes nothing");
    let again = setup.output(0, &["uptime", "apply", "m.yaml"]);
    assert!(again.contains("0 to add, 0 to change, 0 to remove; 2 unchanged"), "{again}");

    // The same table as that of a command on the database.
    let local = |setup: &Setup| {
        let mut command = hob();
        command.current_dir(&setup.server.folder).args(["uptime", "list"]).env("HOB_ADMIN_TOKEN", ADMIN);
        let store = format!("127.0.0.1:{}", setup.server.store_port.unwrap());
        let output = command.env("HOB_EMBEDDED_LISTEN", store).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(wait_for("the same list with and without the server", LIMIT, async || {
        let output = setup.run(&["uptime", "list"]);
        let remote = (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned());
        let ready = remote.1.contains("\nup ") && remote.1.contains(" down since ") && remote.0 == Some(4);
        if ready && remote == local(&setup) { Ok(()) } else { Err(remote) }
    }));

    setup.write("m.yaml", "monitors:\n  self: {name: Itself, kind: tcp, target: nowhere}\n");
    let refused = stderr_line(&setup.run(&["uptime", "apply", "m.yaml"]));
    assert!(refused.starts_with("hob: m.yaml: line 2, column "), "{refused}");
    assert!(refused.contains("monitors.self.target: "), "{refused}");
    setup.write("m.yaml", "monitors: {}\n");
    assert!(setup.output(0, &["uptime", "apply", "m.yaml", "--prune"]).contains("- dead  Dead"));
    let audit = setup.server.get_with(
        &format!("Host: {}\r\nAuthorization: Bearer {ADMIN}", setup.server.listen),
        "/api/v1/audit",
    );
    assert!(audit.body.contains("uptime.apply") && audit.body.contains("- dead, - self"), "{}", audit.body);
}

#[test]
fn tokens_are_managed_on_a_server() {
    let setup = Setup::start(&[]);
    let created = setup.output(0, &["token", "create", "ci", "--scope", "uptime:write", "--expires", "12h"]);
    let secret = created.lines().next().unwrap().to_owned();
    assert!(secret.starts_with("hob_") && created.contains("valid until"), "{created}");
    let list = setup.output(0, &["token", "list"]);
    let line = list.lines().nth(1).unwrap();
    assert!(line.contains("ci") && line.contains("uptime:write") && line.contains("never"), "{list}");
    let denied = setup.command(&["token", "list"]).env("HOB_TOKEN", &secret).output().unwrap();
    let denied = stderr_line(&denied);
    assert!(denied.contains("admin") && !denied.contains(&secret), "{denied}");
    let id = line.split(' ').next().unwrap();
    assert_eq!(setup.output(0, &["token", "revoke", id]), format!("revoked {id}\n"));
    assert!(stderr_line(&setup.run(&["token", "revoke", id])).contains("there is no token"));
    assert!(setup.output(0, &["token", "list"]).contains("revoked "));
}

#[test]
fn load_run_on_a_server_is_judged_and_compared() {
    let setup = Setup::start(&[]);
    let target = setup.server.url("");
    let plan = |threshold: &str| {
        format!(
            "name = \"Site\"\ntarget = \"{target}\"\nthresholds = [\"{threshold}\"]\n[run.all]\ncsv_file = \"u.csv\"\n\
             [[scenario]]\nname = \"s\"\nload = {{ rate = 20, for = \"1s\" }}\n[[scenario.step]]\nname = \"home\"\n\
             request = \"GET /healthz?${{login}}\"\n"
        )
    };
    setup.write("u.csv", "login\nann\n");
    setup.write("plan.toml", &plan("error_rate < 1%"));
    let passed =
        setup.output(0, &["load", "run", "plan.toml", "--wait", "--json", "a.json", "--junit", "a.xml"]);
    assert!(passed.contains("20 requests") && passed.contains("✓ error_rate < 1%"), "{passed}");
    assert!(fs::read_to_string(setup.folder.path().join("a.xml")).unwrap().contains("failures=\"0\""));

    setup.write("plan.toml", &plan("rate > 10000000/s"));
    let failed = setup.output(4, &["load", "run", "plan.toml", "--wait"]);
    assert!(failed.contains("✗ rate > 10000000/s"), "{failed}");
    // The plan has a new version; it is not a second plan.
    let headers = format!("Host: {}\r\nAuthorization: Bearer {ADMIN}", setup.server.listen);
    let plans = setup.server.get_with(&headers, "/api/v1/load/plans").body;
    assert!(plans.matches("\"name\":\"Site\"").count() == 1 && plans.contains("\"version\":2"), "{plans}");

    let queued = setup.output(0, &["load", "run", "plan.toml"]);
    let id = queued.strip_prefix("Queued run ").and_then(|rest| rest.split(':').next()).unwrap().to_owned();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(wait_for("the end of the run", LIMIT, async || {
        setup.server.get_with(&headers, &format!("/api/v1/load/runs/{id}")).body.contains("\"ended_at\":\"")
    }));
    let compared = setup.output(0, &["load", "compare", "a.json", &id]);
    assert!(compared.contains("All steps") && compared.contains("p99"), "{compared}");
    // Without a server: the same run twice, and one with failures that the other does not have.
    setup.output(0, &["load", "compare", "a.json", "a.json", "--max-increase", "0", "--local"]);
    let report = fs::read_to_string(setup.folder.path().join("a.json")).unwrap();
    let worse = report.replacen("\"failed\": 0", "\"failed\": 10", 1);
    assert_ne!(worse, report);
    setup.write("b.json", &worse);
    let judged =
        setup.output(4, &["load", "compare", "a.json", "b.json", "--max-increase", "10%", "--local"]);
    assert!(judged.contains("✗ All steps: Failed grew from 0"), "{judged}");
    setup.output(2, &["load", "run", "plan.toml", "--junit", "x.xml"]);
    setup.output(2, &["load", "run", "plan.toml", "--allow", "a.example"]);
    assert!(stderr_line(&setup.run(&["load", "compare", "a.json", "nothing"])).contains("run nothing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupt_cancels_a_load_run_on_a_server() {
    let setup = Setup::start(&[]);
    let target = setup.server.url("");
    setup.write(
        "plan.toml",
        &format!(
            "name = \"Long\"\ntarget = \"{target}\"\n[[scenario]]\nname = \"s\"\nload = {{ rate = 5, for = \"10m\" }}\n\
             [[scenario.step]]\nname = \"home\"\nrequest = \"GET /healthz\"\n"
        ),
    );
    let mut command = setup.command(&["load", "run", "plan.toml", "--wait"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let headers = format!("Host: {}\r\nAuthorization: Bearer {ADMIN}", setup.server.listen);
    wait_for("a running load test", LIMIT, async || {
        setup.server.get_with(&headers, "/api/v1/load/runs").body.contains("\"state\":\"running\"")
    })
    .await;
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let runs = setup.server.get_with(&headers, "/api/v1/load/runs").body;
    assert!(runs.contains("\"state\":\"cancelled\""), "{runs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipeline_runs_on_a_server() {
    let limits = vec![(100_000, Duration::from_secs(60))];
    let config =
        FakeApiConfig { dockets: 30, entries: 0, page: 20, limits, token: None, latency: Duration::ZERO };
    let api = FakeApi::start(config).await.unwrap();
    let setup = Setup::start(&[]);
    let plan = format!(
        "name = \"dockets\"\nquota = {{ name = \"api\", windows = \"100000/1m\" }}\n[source]\nstep = \"docket\"\n\
         [source.pages]\nurl = \"{0}/dockets/\"\nitems = \"$.results[*]\"\nkey = \"$.id\"\nnext = \"$.next\"\n\
         [step.docket]\nget = \"{0}/dockets/${{key}}/\"\nextract = {{ id = \"$.id\" }}\nsink = \"out\"\n\
         [sink.out]\njsonl = \"out.jsonl\"\n",
        api.url()
    );
    setup.write("plan.toml", &plan);
    let estimate = setup.output(0, &["pipeline", "run", "plan.toml", "--dry-run"]);
    assert!(estimate.contains("the source is a listing"), "{estimate}");
    let done = setup.output(0, &["pipeline", "run", "plan.toml"]);
    assert!(
        done.contains("Starting run dockets") && done.contains("is completed: 32 of 32 items done"),
        "{done}"
    );
    assert!(done.contains("out: 30 lines in "), "{done}");
    let refused = stderr_line(&setup.run(&["pipeline", "run", "plan.toml"]));
    assert!(refused.contains("is completed; `hob pipeline run --again plan.toml`"), "{refused}");
    let again = setup.output(0, &["pipeline", "run", "plan.toml", "--again"]);
    assert!(again.contains("32 of 32 items done"), "{again}");
    setup.output(2, &["pipeline", "run", "plan.toml", "--secret", "a=env:A"]);
    setup.write("plan.toml", "name = 3");
    assert!(stderr_line(&setup.run(&["pipeline", "run", "plan.toml"])).starts_with("hob: plan.toml: "));
    fs::remove_file(setup.folder.path().join("plan.toml")).unwrap();
    assert!(is_empty(setup.folder.path()), "everything is on the server");
}

#[test]
fn server_audits_its_own_keys() {
    let setup = Setup::start(&[]);
    let audited = setup.output(0, &["schema", "audit", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&audited).unwrap();
    assert!(report["keys"].as_u64().unwrap() > 0, "{audited}");
    assert!(
        report["families"].as_array().unwrap().iter().any(|family| family["family"] == "hob.nodes"),
        "{audited}"
    );
    // A key that no schema declares.
    let port = setup.server.store_port.unwrap().to_string();
    let mut store =
        redis::Client::open(format!("redis://:{}@127.0.0.1:{port}/", ADMIN.replace(' ', "%20"))).unwrap();
    let _: () = redis::cmd("SET").arg("undeclared:1").arg("x").query(&mut store).unwrap();
    let text = setup.output(3, &["schema", "audit"]);
    assert!(text.contains("undeclared:"), "{text}");
    let github = setup.output(3, &["schema", "audit", "--format", "github"]);
    assert!(github.starts_with("::warning file=schemas/"), "{github}");
    setup.output(2, &["schema", "audit", "--sample", "1%"]);
}

#[test]
fn login_keeps_the_token_in_a_private_file() {
    let setup = Setup::start(&[]);
    let home = tempfile::tempdir().unwrap();
    let url = setup.server.url("");
    let file = home.path().join("hob/login.toml");
    let hob_at_home = |arguments: &[&str], input: &str| {
        let mut command = hob();
        command.current_dir(&setup.folder).args(arguments).env("XDG_CONFIG_HOME", home.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let wrong = stderr_line(&hob_at_home(&["login", &url], "hob_wrong\n"));
    assert!(wrong.contains("does not accept the token") && !wrong.contains("hob_wrong"), "{wrong}");
    assert!(!file.exists());
    let signed_in = hob_at_home(&["login", &url], &format!("{ADMIN}\n"));
    let text = String::from_utf8_lossy(&signed_in.stdout).into_owned();
    assert!(signed_in.status.success() && text.contains("(admin)") && !text.contains(ADMIN), "{text}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));

    let list = hob_at_home(&["token", "list"], "");
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    assert!(String::from_utf8_lossy(&list.stderr).contains(&format!("using {url}/, from `hob login`")));
    let local = stderr_line(&hob_at_home(&["token", "list", "--local"], ""));
    assert!(local.starts_with("hob: there is no database at "), "{local}");
    // The token belongs to its server: another one does not get it.
    let other = Setup::start(&[]);
    let refused = stderr_line(&hob_at_home(&["token", "list", "--server", &other.server.url("")], ""));
    assert!(refused.contains("requires a token"), "{refused}");

    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let readable = stderr_line(&hob_at_home(&["token", "list"], ""));
    assert!(readable.contains("other users can read the token") && !readable.contains(ADMIN), "{readable}");
    assert!(hob_at_home(&["logout"], "").status.success() && !file.exists());
    assert!(stderr_line(&hob_at_home(&["token", "list"], "")).starts_with("hob: there is no database at "));
}

#[test]
fn private_authority_is_trusted_if_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::create(folder.path());
    let server = Server::launch("127.0.0.1:0", |command| {
        let name = |path: &Path| path.display().to_string();
        command.env("HOB_ADMIN_TOKEN", ADMIN).env("HOB_SERVER_TLS_KEY", name(&identity.key));
        command.env("HOB_SERVER_TLS_CERTIFICATE", name(&identity.certificate))
    });
    let url = format!("https://localhost:{}", server.listen.port());
    let list = |authority: Option<&Path>| {
        let mut command = hob();
        command.current_dir(&folder).args(["token", "list", "--server", &url]).env("HOB_TOKEN", ADMIN);
        if let Some(authority) = authority {
            command.arg("--ca").arg(authority);
        }
        command.output().unwrap()
    };
    let unknown = stderr_line(&list(None));
    assert!(
        unknown.contains("cannot talk to https://localhost") && unknown.contains("UnknownIssuer"),
        "{unknown}"
    );
    let trusted = list(Some(&identity.authority));
    assert!(trusted.status.success(), "{}", String::from_utf8_lossy(&trusted.stderr));
    assert!(stderr_line(&list(Some(Path::new("none.pem")))).contains("none.pem"));
}

#[test]
fn server_that_cannot_be_used_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let run = |server: &str, token: &str| {
        let mut command = hob();
        command
            .current_dir(&folder)
            .args(["token", "list"])
            .env("HOB_SERVER", server)
            .env("HOB_TOKEN", token);
        stderr_line(&command.output().unwrap())
    };
    assert!(run("http://127.0.0.1:1", "").contains("cannot talk to http://127.0.0.1:1/: cannot connect"));
    assert!(run("127.0.0.1:7070", "").contains("the server must be a URL"));
    assert!(run("http://127.0.0.1:1/status", "").contains("no path: write http://127.0.0.1:1"));
    assert!(run("", "hob_secret").contains("a token is set, but no server"));
    assert!(!run("http://user:hob_secret@127.0.0.1", "hob_secret").contains("hob_secret"));
}
