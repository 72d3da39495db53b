//! JSON Lines files over several runs: each run has its own file, and the path in the plan links to the newest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hob_database::{Read as _, sql};
use hob_fixtures::every_service;
use hob_pipeline::fake_api::{FakeApi, FakeApiConfig, Fault};
use hob_pipeline::run::{Run, RunAction, RunState};
use hob_pipeline::{ItemState, Pipelines};
use hob_testkit::{LIMIT, run, wait_for};
use hob_web::Changes;
use tempfile::TempDir;

use crate::runs::{api_config, ids_in, plan, start_run, start_run_as, wait_for_state};
use crate::support::{NEEDS, Node, TestEnv, start};

const DOCKETS: &str = "out/dockets.jsonl";
const ENTRIES: &str = "out/entries.jsonl";

/// A plan in which all sinks are files.
fn plan_for_files(api: &FakeApi) -> String {
    let table = "table = \"entries\"\nsqlite = \"out/entries.db\"\nkey = [\"id\"]";
    plan(api).replace(table, "jsonl = \"out/entries.jsonl\"")
}

async fn run_to_completion(pipelines: &Pipelines, text: &str) -> Run {
    let run = start_run(pipelines, text).await;
    wait_for_state(pipelines, &run, RunState::Completed).await;
    run
}

async fn run_to_completion_as(pipelines: &Pipelines, text: &str, id: &str) -> Run {
    let run = start_run_as(pipelines, text, id).await;
    wait_for_state(pipelines, &run, RunState::Completed).await;
    run
}

/// The target of a link.
fn link_target(node: &Node, name: &str) -> PathBuf {
    node.folder().join(name).canonicalize().unwrap()
}

/// All regular JSON Lines files below a folder, with their content.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files.extend(self::files(&entry.path()));
        } else if kind.is_file() && entry.path().extension().is_some_and(|extension| extension == "jsonl") {
            files.insert(entry.path(), std::fs::read_to_string(entry.path()).unwrap());
        }
    }
    files
}

fn case_name_of(node: &Node, docket: u64) -> String {
    let text = std::fs::read_to_string(node.folder().join(DOCKETS)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let found: Vec<_> = lines.filter(|line| line["id"] == docket).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]["case_name"].as_str().unwrap().to_owned()
}

every_service! {
    NEEDS;

    /// P9
    async fn second_run_has_complete_output_and_preserves_the_first(context: TestContext) {
        let env = TestEnv::new(context);
        let api = FakeApi::start(api_config()).await.unwrap();
        let node = env.node().await;
        run_to_completion(&node.pipelines, &plan_for_files(&api)).await;
        let first: BTreeMap<_, _> =
            [DOCKETS, ENTRIES].map(|name| link_target(&node, name)).map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).into();
        assert_eq!(ids_in(&node, DOCKETS), (1..=25).collect());

        api.change(7);
        let served = api.served();
        let again = run_to_completion(&node.pipelines, &plan_for_files(&api)).await;
        for (path, text) in &first {
            assert_eq!(std::fs::read_to_string(path).unwrap(), *text, "{path:?}");
        }
        assert_eq!(ids_in(&node, DOCKETS), (1..=25).collect());
        assert_eq!(ids_in(&node, ENTRIES).len(), 50);
        assert_eq!((case_name_of(&node, 6), case_name_of(&node, 7)), ("Doe v. Roe No. 6".to_owned(), "Renamed No. 7".to_owned()));
        assert_eq!(api.served() - served, 3 + 25 + 2, "pages, dockets, and the entries of the changed docket");
        env.assert_counts_match(&again.id).await;

        // A third run reuses the stored results of the second.
        run_to_completion(&node.pipelines, &plan_for_files(&api)).await;
        assert_eq!(ids_in(&node, DOCKETS), (1..=25).collect());
        assert_eq!(ids_in(&node, ENTRIES).len(), 50);
        assert_eq!(case_name_of(&node, 7), "Renamed No. 7");
        assert_eq!(files(node.folder()).len(), 6, "three runs with two files each");
    }

    /// P5: an item without a stored result is fetched, although its parent did not change.
    async fn later_run_fetches_items_without_stored_results(context: TestContext) {
        let env = TestEnv::new(context);
        let api = FakeApi::start(FakeApiConfig { dockets: 5, ..api_config() }).await.unwrap();
        let node = env.node().await;
        api.fail("/docket-entries/2000/", Fault::Status(403));
        let first = run_to_completion(&node.pipelines, &plan_for_files(&api)).await;
        assert_eq!(node.pipelines.progress(&first.id).await.unwrap().of(ItemState::Quarantined), 1);
        assert_eq!(ids_in(&node, ENTRIES).len(), 9);
        let served = api.served();
        run_to_completion(&node.pipelines, &plan_for_files(&api)).await;
        assert_eq!(ids_in(&node, ENTRIES).len(), 10);
        assert_eq!(api.served() - served, 1 + 5 + 1);
    }

    /// A run with dead letters does not replace the link of a complete run until they are replayed.
    async fn run_with_dead_letters_does_not_replace_a_complete_one(context: TestContext) {
        let env = TestEnv::new(context);
        let api = FakeApi::start(FakeApiConfig { entries: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        run_to_completion(&node.pipelines, &plan(&api)).await;
        let complete = link_target(&node, DOCKETS);
        // For example, because a token has expired.
        api.fail("/dockets/", Fault::Status(403));
        let failed = run_to_completion(&node.pipelines, &plan(&api)).await;
        assert_eq!(link_target(&node, DOCKETS), complete);
        let outputs = node.pipelines.outputs(&failed.id).await.unwrap();
        let empty = outputs.iter().find(|output| output.sink == "dockets").unwrap();
        assert_eq!(std::fs::read_to_string(node.folder().join(&empty.file)).unwrap(), "");
        node.pipelines.replay(&failed.id, None).await.unwrap();
        wait_for_state(&node.pipelines, &failed, RunState::Completed).await;
        assert_eq!(link_target(&node, DOCKETS), node.folder().join(&empty.file).canonicalize().unwrap());
        assert_eq!(ids_in(&node, DOCKETS), (1..=25).collect());
    }
}

/// A node whose lease on a sink has expired, such as after its process was suspended, closes the file. While it is open, it is
/// locked, and the node that has the lease cannot write.
#[test]
fn node_that_lost_the_lease_closes_its_file() {
    run(async {
        let env = TestEnv::embedded().await;
        let api = FakeApi::start(FakeApiConfig { dockets: 300, entries: 0, ..api_config() }).await.unwrap();
        let first = env.node().await;
        // Slow enough that results arrive during the whole test.
        let started = start_run(&first.pipelines, &plan_for_files(&api).replace("1000/1m", "5/1s")).await;
        let sink = async || {
            let find = sql(
                "SELECT writer, rows FROM pipeline_sink WHERE run = $1 AND sink = 'dockets' AND rows > 0",
            );
            env.database.optional::<(String, u64)>(find.bind(&started.id)).await.unwrap().ok_or("no results")
        };
        let (first_writer, _) = wait_for("results of the first node", LIMIT, &sink).await;
        let context = env.context(env.test_store().store().clone());
        start(&context, first.folder(), &Changes::detached(&context)).await;
        let rows = wait_for("another writer", LIMIT, async || {
            let (writer, rows) = sink().await?;
            if writer != first_writer {
                return Ok(rows);
            }
            let expire = sql("UPDATE pipeline_sink SET until = 0 WHERE writer = $1");
            env.database.execute(expire.bind(&writer)).await.unwrap();
            Err("the first node writes")
        })
        .await;
        wait_for("results of the second node", LIMIT, async || {
            let (_, now) = sink().await?;
            if now > rows { Ok(()) } else { Err("no new results") }
        })
        .await;
        let running = context.tasks.stop(LIMIT).await;
        assert!(running.is_empty(), "{running:?} are still running");
        first.stop().await;
    });
}

/// A stored result does not match a plan whose step has changed.
#[test]
fn changed_step_is_fetched_again() {
    run(async {
        let env = TestEnv::embedded().await;
        let api = FakeApi::start(FakeApiConfig { dockets: 3, entries: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        run_to_completion(&node.pipelines, &plan(&api)).await;
        let text = plan(&api).replace("case_name = \"$.case_name\"", "case_name = \"$.court\"");
        run_to_completion(&node.pipelines, &text).await;
        assert_eq!(case_name_of(&node, 1), "nysd");
    });
}

/// The next run reuses the results of a cancelled run.
#[test]
fn run_after_a_cancelled_one_is_complete() {
    run(async {
        let env = TestEnv::embedded().await;
        // Slow enough that calls remain when the run is cancelled, even if the machine stalls.
        let latency = std::time::Duration::from_millis(300);
        let api = FakeApi::start(FakeApiConfig { latency, ..api_config() }).await.unwrap();
        let node = env.node().await;
        let first = start_run(&node.pipelines, &plan_for_files(&api)).await;
        wait_for("some dockets", LIMIT, async || {
            node.pipelines.progress(&first.id).await.unwrap().of(ItemState::Done) > 10
        })
        .await;
        node.pipelines.apply(&first.id, RunAction::Cancel).await.unwrap();
        run_to_completion(&node.pipelines, &plan_for_files(&api)).await;
        assert_eq!(ids_in(&node, DOCKETS), (1..=25).collect());
        assert_eq!(ids_in(&node, ENTRIES).len(), 50);
    });
}

#[test]
fn run_ids_make_file_names_inside_the_folder() {
    run(async {
        let env = TestEnv::embedded().await;
        let api = FakeApi::start(FakeApiConfig { dockets: 2, entries: 0, ..api_config() }).await.unwrap();
        let outer = TempDir::new().unwrap();
        let node =
            env.node_in(TempDir::new_in(outer.path()).unwrap(), env.test_store().store().clone()).await;
        let text = plan(&api).replace("jsonl = \"out/dockets.jsonl\"", "jsonl = \"${run}/dockets.jsonl\"");
        let long = |end: &str| format!("{}{end}", "x".repeat(249));
        // The long ids differ only in the truncated part.
        for id in ["manual_2024-09-17T14:30:00+00:00", "..", ".", &long("a"), &long("b")] {
            run_to_completion_as(&node.pipelines, &text, id).await;
        }
        let all = files(outer.path());
        assert_eq!(all.len(), 5, "{all:#?}");
        for (path, text) in &all {
            assert!(path.starts_with(node.folder()), "{path:?}");
            assert_eq!(text.lines().count(), 2, "{path:?}");
        }
        assert!(node.folder().join("manual_2024-09-17T14%3A30%3A00%2B00%3A00/dockets.jsonl").is_file());
    });
}

/// After a loss of the database, Airflow may use an id again: a file with lines is never truncated.
#[test]
fn run_with_a_reused_id_preserves_existing_files() {
    run(async {
        let api = FakeApi::start(FakeApiConfig { dockets: 3, entries: 0, ..api_config() }).await.unwrap();
        let mut folder = TempDir::new().unwrap();
        for dockets in 1..=3 {
            let env = TestEnv::embedded().await;
            let node = env.node_in(folder, env.test_store().store().clone()).await;
            api.change(dockets);
            run_to_completion_as(&node.pipelines, &plan(&api), "daily").await;
            assert_eq!(case_name_of(&node, dockets), format!("Renamed No. {dockets}"));
            folder = node.stop().await;
        }
        let renamed: Vec<usize> =
            files(folder.path()).values().map(|text| text.matches("Renamed").count()).collect();
        assert_eq!(renamed, [1, 2, 3]);
    });
}

/// A regular file with the name of the link is preserved.
#[test]
fn existing_file_is_preserved() {
    run(async {
        let env = TestEnv::embedded().await;
        let api = FakeApi::start(FakeApiConfig { dockets: 3, entries: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        std::fs::create_dir(node.folder().join("out")).unwrap();
        std::fs::write(node.folder().join(DOCKETS), "{\"id\": 99}\n").unwrap();
        run_to_completion(&node.pipelines, &plan(&api)).await;
        assert_eq!(ids_in(&node, DOCKETS), (1..=3).collect());
        assert_eq!(ids_in(&node, "out/dockets-earlier.jsonl"), [99].into());
    });
}

/// The link is created before the run completes, and again after a crash in between.
#[test]
fn missing_link_is_created_after_a_crash() {
    run(async {
        let env = TestEnv::embedded().await;
        let api = FakeApi::start(FakeApiConfig { dockets: 3, entries: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        let started = run_to_completion(&node.pipelines, &plan(&api)).await;
        let folder = node.stop().await;
        std::fs::remove_file(folder.path().join(DOCKETS)).unwrap();
        env.database.execute(sql("UPDATE pipeline_run SET state = 'running'")).await.unwrap();
        let node = env.node_in(folder, env.test_store().store().clone()).await;
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        assert_eq!(ids_in(&node, DOCKETS), (1..=3).collect());
        let hidden =
            std::fs::read_dir(node.folder().join("out")).unwrap().map(|entry| entry.unwrap().file_name());
        let hidden: Vec<_> = hidden.filter(|name| name.to_string_lossy().starts_with('.')).collect();
        assert!(hidden.is_empty(), "{hidden:?}");
    });
}

#[test]
fn run_without_results_has_an_empty_file() {
    run(async {
        let env = TestEnv::embedded().await;
        let api = FakeApi::start(FakeApiConfig { dockets: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        run_to_completion(&node.pipelines, &plan(&api)).await;
        assert_eq!(std::fs::read_to_string(node.folder().join(DOCKETS)).unwrap(), "");
    });
}

#[test]
fn other_users_cannot_read_the_output() {
    use std::os::unix::fs::PermissionsExt as _;

    fn check(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let (metadata, name) = (path.metadata().unwrap(), path.file_name().unwrap().to_string_lossy());
            let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(metadata.permissions().mode() & 0o777, expected, "{}", path.display());
            found.push(name.into_owned());
            if metadata.is_dir() {
                check(&path, found);
            }
        }
    }

    run(async {
        let env = TestEnv::embedded().await;
        let api = FakeApi::start(FakeApiConfig { dockets: 2, ..api_config() }).await.unwrap();
        let node = env.node().await;
        run_to_completion(&node.pipelines, &plan(&api)).await;
        let mut found = Vec::new();
        check(node.folder(), &mut found);
        for name in ["out", "dockets.jsonl", "entries.db"] {
            assert!(found.iter().any(|file| file == name), "{found:?}");
        }
    });
}
