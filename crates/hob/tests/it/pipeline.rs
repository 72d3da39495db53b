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
        let api = FakeApi::start(config).await.expect("the fake API");
        let folder = TempDir::new().expect("a folder");
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
        std::fs::write(folder.path().join("plan.toml"), plan).expect("a plan");
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
        let mut command = self.command("run");
        command.args(["--secret", "api=env:API_TOKEN"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("hob")
    }

    /// The ids that were written, each of them once.
    fn written(&self) -> BTreeSet<u64> {
        let mut ids = BTreeSet::new();
        for line in std::fs::read_to_string(self.folder.path().join("out.jsonl")).unwrap_or_default().lines()
        {
            let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            assert!(ids.insert(line["id"].as_u64().expect("an id")), "duplicate {line}");
        }
        ids
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().expect("a pid")).expect("a pid")
}

async fn ended(child: Child) -> Output {
    tokio::task::spawn_blocking(|| child.wait_with_output().expect("an end")).await.expect("an end")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn generous() -> Vec<(u32, Duration)> {
    vec![(100_000, Duration::from_secs(60))]
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_stops_cleanly_and_the_same_command_resumes() {
    let plan_dir = TestPlan::new(60, Duration::from_millis(60), "1000/1m", generous()).await;
    let child = plan_dir.run();
    wait_for("some calls", LIMIT, async || plan_dir.api.served() > 10).await;
    kill_process(pid(&child), Signal::INT).expect("Ctrl-C");
    let output = ended(child).await;
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("run the same command to resume"), "{}", text(&output));
    let before = plan_dir.api.served();
    assert!(before < 63, "{before}");

    let status = plan_dir.command("status").output().expect("a status");
    assert!(text(&status).contains("is running"), "{}", text(&status));
    let output = ended(plan_dir.run()).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(plan_dir.written(), (1..=60).collect());
    assert_eq!(plan_dir.api.served(), 63, "no request was repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_and_replayed() {
    let plan_dir = TestPlan::new(5, Duration::ZERO, "1000/1m", generous()).await;
    plan_dir.api.fail("/dockets/3/", Fault::Status(403));
    let output = ended(plan_dir.run()).await;
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let failed = plan_dir.command("failed").output().expect("a list");
    assert!(text(&failed).starts_with("docket\t3\tclient\t1\t403"), "{}", text(&failed));
    let wrong = plan_dir.command("replay").args(["--class", "mine"]).output().expect("a refusal");
    assert_eq!(wrong.status.code(), Some(1), "{}", text(&wrong));
    let replayed = plan_dir.command("replay").args(["--class", "client"]).output().expect("a replay");
    assert!(text(&replayed).starts_with("1 items"), "{}", text(&replayed));
    assert_eq!(ended(plan_dir.run()).await.status.code(), Some(0));
    assert_eq!(plan_dir.written(), (1..=5).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_paused_from_another_process_and_a_second_run_is_rejected() {
    let plan_dir = TestPlan::new(60, Duration::from_millis(100), "1000/1m", generous()).await;
    let child = plan_dir.run();
    wait_for("some calls", LIMIT, async || plan_dir.api.served() > 5).await;
    let second = ended(plan_dir.run()).await;
    assert!(text(&second).contains("another process is running this plan"), "{}", text(&second));
    let paused = plan_dir.command("pause").output().expect("a pause");
    assert!(text(&paused).contains("paused"), "{}", text(&paused));
    let output = ended(child).await;
    assert!(text(&output).contains("is paused"), "{}", text(&output));
    let resumed = plan_dir.command("resume").output().expect("a resume");
    assert!(text(&resumed).contains("is running"), "{}", text(&resumed));
    assert_eq!(ended(plan_dir.run()).await.status.code(), Some(0));
    assert_eq!(plan_dir.written(), (1..=60).collect());
}

/// After the end, the same command starts a new run and preserves the output of the first.
#[tokio::test(flavor = "multi_thread")]
async fn command_after_the_end_starts_a_new_run() {
    let plan_dir = TestPlan::new(30, Duration::ZERO, "1000/1m", generous()).await;
    let plan = std::fs::read_to_string(plan_dir.plan()).expect("the plan");
    std::fs::write(plan_dir.plan(), plan.replace("sink = \"out\"", "sink = \"out\"\nconditional = true"))
        .expect("a plan");
    let output = ended(plan_dir.run()).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let first = plan_dir.folder.path().join("out.jsonl").canonicalize().expect("an output");
    let before = std::fs::read(&first).expect("the output");
    assert!(text(&output).contains("30 lines in "), "{}", text(&output));
    assert!(text(&output).contains("out.jsonl links to it"), "{}", text(&output));

    plan_dir.api.change(7);
    let output = ended(plan_dir.run()).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = text(&output);
    assert!(printed.contains("is completed. Its output is kept:"), "{printed}");
    assert!(printed.contains(first.file_name().and_then(|name| name.to_str()).expect("a name")), "{printed}");
    assert!(printed.contains("Starting run dockets_"), "{printed}");
    assert_eq!(std::fs::read(&first).expect("the output"), before);
    assert_ne!(plan_dir.folder.path().join("out.jsonl").canonicalize().expect("an output"), first);
    assert_eq!(plan_dir.written(), (1..=30).collect());
    assert!(text(&plan_dir.command("status").output().expect("a status")).contains("30 lines in "));
}

#[test]
fn invalid_plan_is_rejected_with_its_line() {
    let folder = TempDir::new().expect("a folder");
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, "name = \"p\"\nquota = { name = \"api\" }\nsource = { step = \"s\", list = [] }\n")
        .expect("a plan");
    let output = hob().args(["pipeline", "run"]).arg(&plan).output().expect("a refusal");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("line 3, source.step: there is no [step.s]"), "{}", text(&output));
    assert!(!Path::new(&plan.with_extension("hob.db")).exists(), "no database was created");
}

/// The example is a valid plan, and a dry run makes no calls.
#[test]
fn example_is_valid() {
    let folder = TempDir::new().expect("a folder");
    let plan = folder.path().join("courtlistener.toml");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pipelines/courtlistener.toml");
    std::fs::copy(example, &plan).expect("the example");
    let output = hob().args(["pipeline", "run", "--dry-run"]).arg(&plan).output().expect("a cost");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("a listing"), "{}", text(&output));
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
        let plan = std::fs::read_to_string(plan_dir.plan()).expect("the plan");
        let plan = plan.replace("sink = \"out\"", "sink = \"out\"\nconditional = true");
        // The call of a killed process counts until its deadline: a short timeout keeps the quota usable.
        std::fs::write(plan_dir.plan(), plan + "[http]\ntimeout = \"2s\"\n").expect("the plan");
        let kills = until_done(&plan_dir, dockets).await;
        assert_eq!(plan_dir.written(), (1..=dockets).collect(), "after {kills} kills");
        let first = plan_dir.folder.path().join("out.jsonl").canonicalize().expect("an output");
        let before = std::fs::read(&first).expect("the output");
        plan_dir.api.change(7);
        let kills = until_done(&plan_dir, dockets).await;
        assert_eq!(plan_dir.written(), (1..=dockets).collect(), "after {kills} kills of the second run");
        assert_eq!(std::fs::read(&first).expect("the output"), before);
        assert_ne!(plan_dir.folder.path().join("out.jsonl").canonicalize().expect("an output"), first);
        assert_eq!(plan_dir.api.throttled(), 0);
    }

    /// Starts and kills the plan repeatedly until it is done.
    async fn until_done(plan_dir: &TestPlan, dockets: u64) -> u64 {
        let mut kills = 0_u64;
        loop {
            let mut child = plan_dir.run();
            // Sometimes early, while it opens its database; sometimes in the middle of its work.
            let life = Duration::from_millis(150 + kills * 619 % 2_500);
            let waited = tokio::time::timeout(life, async {
                while child.try_wait().expect("a child").is_none() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            if waited.await.is_ok() {
                let output = ended(child).await;
                assert_eq!(output.status.code(), Some(0), "{}", text(&output));
                break;
            }
            kill_process(pid(&child), Signal::KILL).expect("SIGKILL");
            ended(child).await;
            kills += 1;
            assert!(kills < dockets, "no progress");
        }
        assert!(kills >= budget(1, 50), "{kills} kills");
        kills
    }
}
