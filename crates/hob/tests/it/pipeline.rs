//! `hob pipeline`: the real binary against the fake API.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use hob_pipeline::fake_api::{FakeApi, FakeApiConfig, Fault};
use hob_testkit::{LIMIT, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::program::hob;

struct TestPlan {
    folder: TempDir,
    api: FakeApi,
}

impl TestPlan {
    /// A plan in its own folder, and a fake API.
    async fn new(dockets: u64, latency: Duration, windows: &str, limits: Vec<(u32, Duration)>) -> TestPlan {
        let token = Some("s3cret".to_owned());
        let config = FakeApiConfig { dockets, entries: 0, page: 20, limits, token, latency };
        let api = FakeApi::start(config).await.expect("cannot start the fake API");
        let folder = TempDir::new().expect("cannot create a temporary folder");
        let plan = format!(
            r#"name = "dockets"
quota = {{ name = "api", windows = "{windows}" }}
[source]
step = "docket"
[source.pages]
url = "{0}/dockets/"
headers = {{ Authorization = "Token ${{secret.api}}" }}
items = "$.results[*]"
key = "$.id"
next = "$.next"
[step.docket]
get = "{0}/dockets/${{key}}/"
headers = {{ Authorization = "Token ${{secret.api}}" }}
extract = {{ id = "$.id" }}
sink = "out"
[sink.out]
jsonl = "out.jsonl"
"#,
            api.url()
        );
        std::fs::write(folder.path().join("plan.toml"), plan).expect("cannot write the plan");
        TestPlan { folder, api }
    }

    fn plan(&self) -> PathBuf {
        self.folder.path().join("plan.toml")
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = hob();
        command
            .args(["pipeline", verb])
            .arg(self.plan())
            .env("API_TOKEN", "s3cret")
            .current_dir(self.folder.path());
        command
    }

    fn run(&self) -> Child {
        self.run_with(&[])
    }

    /// Starts a new run if the last one is completed.
    fn run_again(&self) -> Child {
        self.run_with(&["--again"])
    }

    fn run_with(&self, options: &[&str]) -> Child {
        let mut command = self.command("run");
        command.args(["--secret", "api=env:API_TOKEN"]).args(options);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cannot start hob")
    }

    /// Changes the text of the plan.
    fn edit(&self, from: &str, to: &str) {
        let plan = std::fs::read_to_string(self.plan()).expect("cannot read the plan");
        assert!(plan.contains(from), "{plan}");
        std::fs::write(self.plan(), plan.replace(from, to)).expect("cannot write the plan");
    }

    /// The ids in the output; fails on a duplicate.
    fn written(&self) -> BTreeSet<u64> {
        let mut ids = BTreeSet::new();
        for line in std::fs::read_to_string(self.folder.path().join("out.jsonl")).unwrap_or_default().lines()
        {
            let line: serde_json::Value = serde_json::from_str(line).expect("incomplete line");
            assert!(ids.insert(line["id"].as_u64().expect("no id in the line")), "duplicate {line}");
        }
        ids
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().expect("invalid pid")).expect("invalid pid")
}

async fn wait_for_exit(child: Child) -> Output {
    tokio::task::spawn_blocking(|| child.wait_with_output().expect("cannot wait for hob"))
        .await
        .expect("the task panicked")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn high_limits() -> Vec<(u32, Duration)> {
    vec![(100_000, Duration::from_secs(60))]
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_stops_cleanly_and_the_same_command_resumes() {
    // Slow enough that calls remain when the run is stopped, even if the machine stalls.
    let plan_dir = TestPlan::new(60, Duration::from_millis(400), "1000/1m", high_limits()).await;
    let child = plan_dir.run();
    wait_for("some API calls", LIMIT, async || plan_dir.api.served() > 10).await;
    kill_process(pid(&child), Signal::INT).expect("cannot send SIGINT");
    let output = wait_for_exit(child).await;
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("run the same command to resume"), "{}", text(&output));
    let before = plan_dir.api.served();
    assert!(before < 63, "{before}");

    let status = plan_dir.command("status").output().expect("cannot start hob");
    assert!(text(&status).contains("is running"), "{}", text(&status));
    let output = wait_for_exit(plan_dir.run()).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(plan_dir.written(), (1..=60).collect());
    assert_eq!(plan_dir.api.served(), 63, "no request was repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_and_replayed() {
    let plan_dir = TestPlan::new(5, Duration::ZERO, "1000/1m", high_limits()).await;
    plan_dir.api.fail("/dockets/3/", Fault::Status(403));
    let output = wait_for_exit(plan_dir.run()).await;
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let failed = plan_dir.command("failed").output().expect("cannot start hob");
    assert!(text(&failed).starts_with("docket\t3\tclient\t1\t403"), "{}", text(&failed));
    let wrong = plan_dir.command("replay").args(["--class", "mine"]).output().expect("cannot start hob");
    assert_eq!(wrong.status.code(), Some(1), "{}", text(&wrong));
    let replayed = plan_dir.command("replay").args(["--class", "client"]).output().expect("cannot start hob");
    assert!(text(&replayed).starts_with("1 items"), "{}", text(&replayed));
    assert_eq!(wait_for_exit(plan_dir.run()).await.status.code(), Some(0));
    assert_eq!(plan_dir.written(), (1..=5).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_paused_from_another_process_and_a_second_run_is_rejected() {
    // Slow enough that calls remain when two more processes have started, even on a busy machine.
    let plan_dir = TestPlan::new(60, Duration::from_millis(800), "1000/1m", high_limits()).await;
    let child = plan_dir.run();
    wait_for("some API calls", LIMIT, async || plan_dir.api.served() > 5).await;
    let second = wait_for_exit(plan_dir.run()).await;
    assert!(text(&second).contains("another process is running this plan"), "{}", text(&second));
    let paused = plan_dir.command("pause").output().expect("cannot start hob");
    assert!(text(&paused).contains("paused"), "{}", text(&paused));
    let output = wait_for_exit(child).await;
    assert!(text(&output).contains("is paused"), "{}", text(&output));
    let resumed = plan_dir.command("resume").output().expect("cannot start hob");
    assert!(text(&resumed).contains("is running"), "{}", text(&resumed));
    assert_eq!(wait_for_exit(plan_dir.run()).await.status.code(), Some(0));
    assert_eq!(plan_dir.written(), (1..=60).collect());
}

/// After the end, a new run must be asked for. It preserves the output of the first.
#[tokio::test(flavor = "multi_thread")]
async fn completed_plan_is_run_again_only_on_request() {
    let plan_dir = TestPlan::new(30, Duration::ZERO, "1000/1m", high_limits()).await;
    plan_dir.edit("sink = \"out\"", "sink = \"out\"\nconditional = true");
    let output = wait_for_exit(plan_dir.run()).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let first =
        plan_dir.folder.path().join("out.jsonl").canonicalize().expect("cannot resolve the output link");
    let before = std::fs::read(&first).expect("cannot read the output");
    assert!(text(&output).contains("30 lines in "), "{}", text(&output));
    assert!(text(&output).contains("out.jsonl links to it"), "{}", text(&output));

    let served = plan_dir.api.served();
    let output = wait_for_exit(plan_dir.run()).await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("is completed; `hob pipeline run --again "), "{}", text(&output));
    assert_eq!(plan_dir.api.served(), served, "no calls");

    plan_dir.api.change(7);
    let output = wait_for_exit(plan_dir.run_again()).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = text(&output);
    assert!(printed.contains("is completed. Its output is kept:"), "{printed}");
    assert!(
        printed.contains(first.file_name().and_then(|name| name.to_str()).expect("no file name")),
        "{printed}"
    );
    assert!(printed.contains("Starting run dockets_"), "{printed}");
    assert_eq!(std::fs::read(&first).expect("cannot read the output"), before);
    assert_ne!(
        plan_dir.folder.path().join("out.jsonl").canonicalize().expect("cannot resolve the output link"),
        first
    );
    assert_eq!(plan_dir.written(), (1..=30).collect());
    assert!(text(&plan_dir.command("status").output().expect("cannot start hob")).contains("30 lines in "));
}

#[test]
fn invalid_plan_is_rejected_with_its_line() {
    let folder = TempDir::new().expect("cannot create a temporary folder");
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, "name = \"p\"\nquota = { name = \"api\" }\nsource = { step = \"s\", list = [] }\n")
        .expect("cannot write the plan");
    let output = hob().args(["pipeline", "run"]).arg(&plan).output().expect("cannot start hob");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("line 3, source.step: there is no [step.s]"), "{}", text(&output));
    assert!(!Path::new(&plan.with_extension("hob.db")).exists(), "no database was created");
}

/// The example is a valid plan, and a dry run makes no calls.
#[test]
fn example_is_valid() {
    let folder = TempDir::new().expect("cannot create a temporary folder");
    let plan = folder.path().join("courtlistener.toml");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pipelines/courtlistener.toml");
    std::fs::copy(example, &plan).expect("cannot copy the example");
    let output = hob().args(["pipeline", "run", "--dry-run"]).arg(&plan).output().expect("cannot start hob");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("a listing"), "{}", text(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_an_unset_secret_is_not_started() {
    let plan_dir = TestPlan::new(5, Duration::ZERO, "1000/1m", high_limits()).await;
    let mut command = plan_dir.command("run");
    command.args(["--secret", "api=env:API_TOKEN"]).env_remove("API_TOKEN");
    let output = command.output().expect("cannot start hob");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("API_TOKEN"), "{}", text(&output));
    let config = "[secrets.api]\nfrom = \"env:API_TOKEN\"\nfor = [\"pipeline\"]\nhosts = [\"127.0.0.1\"]\n";
    std::fs::write(plan_dir.folder.path().join("hob.toml"), config).expect("cannot write hob.toml");
    let output = plan_dir.command("run").env_remove("API_TOKEN").output().expect("cannot start hob");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("the secret api cannot be read"), "{}", text(&output));
    let status = plan_dir.command("status").output().expect("cannot start hob");
    assert!(text(&status).contains("has no runs"), "{}", text(&status));
    assert_eq!(plan_dir.api.served(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_shows_why_a_sink_is_blocked() {
    let plan_dir = TestPlan::new(3, Duration::ZERO, "1000/1m", high_limits()).await;
    plan_dir.edit("jsonl = \"out.jsonl\"", "jsonl = \"out/dockets.jsonl\"");
    // A file where the sink needs a folder.
    std::fs::write(plan_dir.folder.path().join("out"), "").expect("cannot write a file");
    let child = plan_dir.run();
    wait_for("the trouble in the status", LIMIT, async || {
        text(&plan_dir.command("status").output().expect("cannot start hob")).contains("blocked: sink out")
    })
    .await;
    kill_process(pid(&child), Signal::INT).expect("cannot send SIGINT");
    let output = wait_for_exit(child).await;
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("blocked: sink out"), "{}", text(&output));
}

/// P8: two plans in a folder never exceed their quota together.
#[tokio::test(flavor = "multi_thread")]
async fn plans_in_a_folder_share_a_quota() {
    let plan_dir = TestPlan::new(20, Duration::ZERO, "10/2s", vec![(10, Duration::from_secs(2))]).await;
    let plan = std::fs::read_to_string(plan_dir.plan()).expect("cannot read the plan");
    let other = plan.replace("name = \"dockets\"", "name = \"other\"").replace("out.jsonl", "other.jsonl");
    let other_path = plan_dir.folder.path().join("other.toml");
    std::fs::write(&other_path, other).expect("cannot write the plan");
    let mut second = hob();
    second.args(["pipeline", "run", "--secret", "api=env:API_TOKEN"]).arg(&other_path);
    second.env("API_TOKEN", "s3cret").current_dir(plan_dir.folder.path());
    second.stdout(Stdio::piped()).stderr(Stdio::piped());
    let children = [plan_dir.run(), second.spawn().expect("cannot start hob")];
    for child in children {
        let output = wait_for_exit(child).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    assert_eq!((plan_dir.api.served(), plan_dir.api.throttled()), (42, 0));
}

#[test]
fn dry_run_says_what_is_not_counted() {
    let folder = TempDir::new().expect("cannot create a temporary folder");
    let plan = folder.path().join("plan.toml");
    let dry_run = |windows: &str| {
        let source = format!(
            "name = \"p\"\nquota = {{ name = \"api\", windows = \"{windows}\" }}\n\
             source = {{ step = \"docket\", list = [\"1\", \"2\", \"3\"] }}\n\
             [step.docket]\nget = \"http://127.0.0.1:1/${{key}}\"\n\
             follow = [{{ step = \"entry\", items = \"$.entries[*]\", key = \"$.id\" }}]\n\
             [step.entry]\nget = \"http://127.0.0.1:1/entries/${{key}}\"\n"
        );
        std::fs::write(&plan, source).expect("cannot write the plan");
        let output =
            hob().args(["pipeline", "run", "--dry-run"]).arg(&plan).output().expect("cannot start hob");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        text(&output)
    };
    let printed = dry_run("100/1h");
    assert!(printed.contains("3 items, 3 calls; the quota allows them at once"), "{printed}");
    assert!(printed.contains("further calls for items that follow from them (entry)"), "{printed}");
    let printed = dry_run("1/1m");
    assert!(printed.contains("3 items, 3 calls; the quota allows them in about 2 minutes"), "{printed}");
}

mod slow {
    use hob_testkit::budget;

    use super::*;

    /// P8: the process and its embedded store are killed at random times, in a first run and in one with few changes.
    /// No result is lost or duplicated, the quota is not exceeded, and the output of the first run is preserved.
    #[tokio::test(flavor = "multi_thread")]
    async fn run_survives_kills() {
        let limits = vec![(30, Duration::from_secs(1))];
        let dockets = budget(100, 2_000);
        let plan_dir = TestPlan::new(dockets, Duration::from_millis(10), "30/1s", limits).await;
        let plan = std::fs::read_to_string(plan_dir.plan()).expect("cannot read the plan");
        let plan = plan.replace("sink = \"out\"", "sink = \"out\"\nconditional = true");
        // The call of a killed process counts until its deadline: a short timeout keeps the quota usable.
        std::fs::write(plan_dir.plan(), plan + "[http]\ntimeout = \"2s\"\n").expect("cannot write the plan");
        let kills = kill_until_done(&plan_dir, dockets).await;
        assert_eq!(plan_dir.written(), (1..=dockets).collect(), "after {kills} kills");
        let first =
            plan_dir.folder.path().join("out.jsonl").canonicalize().expect("cannot resolve the output link");
        let before = std::fs::read(&first).expect("cannot read the output");
        plan_dir.api.change(7);
        let kills = kill_until_done(&plan_dir, dockets).await;
        assert_eq!(plan_dir.written(), (1..=dockets).collect(), "after {kills} kills of the second run");
        assert_eq!(std::fs::read(&first).expect("cannot read the output"), before);
        assert_ne!(
            plan_dir.folder.path().join("out.jsonl").canonicalize().expect("cannot resolve the output link"),
            first
        );
        assert_eq!(plan_dir.api.throttled(), 0);
    }

    /// Starts and kills the plan repeatedly until it completes; returns the number of kills.
    async fn kill_until_done(plan_dir: &TestPlan, dockets: u64) -> u64 {
        let mut kills = 0_u64;
        loop {
            // It may have been killed after its last item.
            let mut child = plan_dir.run_again();
            // Sometimes early, while the process opens its database; sometimes during its work. On a busy machine that comes
            // later, so the range grows.
            let lifetime = Duration::from_millis(150 + kills * 619 % (2_500 + kills * 100));
            let waited = tokio::time::timeout(lifetime, async {
                while child.try_wait().expect("cannot poll hob").is_none() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            if waited.await.is_ok() {
                let output = wait_for_exit(child).await;
                assert_eq!(output.status.code(), Some(0), "{}", text(&output));
                break;
            }
            kill_process(pid(&child), Signal::KILL).expect("cannot send SIGKILL");
            wait_for_exit(child).await;
            kills += 1;
            assert!(kills < dockets, "no progress");
        }
        assert!(kills >= budget(1, 50), "{kills} kills");
        kills
    }
}
