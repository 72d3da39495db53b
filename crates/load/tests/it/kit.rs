//! Nodes and plans for tests.

use hob_fixtures::Needs;
use hob_load::plan::PlanSource;
use hob_load::{Config, Load, MIGRATIONS, PlanId, QueueOutcome, Run, RunRequest, RunState, TestId};
use hob_service::{Live, Period, ServiceContext};
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use hob_web::Web;

pub(crate) const NEEDS: Needs = Needs {
    schemas: &[("schemas/load.toml", include_str!("../../../../schemas/load.toml"))],
    migrations: &[MIGRATIONS],
};

/// The settings of a node that runs load. A machine that stalls for a few seconds loses no runner and starts no run
/// without all of them.
pub(crate) fn worker_config() -> Config {
    let patience = Period::from_secs(60);
    Config { threads: 1, lease: patience, gather_timeout: patience, ..Config::default() }
}

/// A node that runs load.
pub(crate) async fn worker_node(context: &ServiceContext) -> Load {
    let load = Load::open(context, Live::fixed(worker_config())).await.unwrap();
    let web = Web::open(context, Live::fixed(hob_web::Config::default())).unwrap();
    load.start(web.changes());
    load
}

/// A node that only maintains the queue.
pub(crate) async fn queue_node(context: &ServiceContext) -> Load {
    let config = Config { max_concurrent_runs: 0, ..Config::default() };
    Load::open(context, Live::fixed(config)).await.unwrap()
}

/// A plan with a constant rate.
pub(crate) fn plan(url: &str, rate: u32, duration: &str) -> String {
    format!(
        "name = \"Site check\"\ntarget = \"{url}\"\nthresholds = [\"error_rate < 50%\"]\n\
         [run.smoke]\ngroups = [\"read\"]\nusers = [{{ login = \"ann\" }}, {{ login = \"bob\" }}]\n\
         [[scenario]]\nname = \"browse\"\nload = {{ rate = {rate}, for = \"{duration}\" }}\n\
         [[scenario.step]]\nname = \"home\"\ngroup = \"read\"\nrequest = \"GET /?who=${{login}}\"\n"
    )
}

pub(crate) async fn add(load: &Load, url: &str, rate: u32, duration: &str) -> PlanId {
    load.add_plan(&PlanSource::toml(plan(url, rate, duration))).await.unwrap()
}

pub(crate) async fn queue(load: &Load, plan: PlanId, request: RunRequest) -> TestId {
    match load.queue_run(plan, &request).await.unwrap() {
        QueueOutcome::Queued(id) => id,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn run(load: &Load, id: &TestId) -> Run {
    load.run(id).await.unwrap().expect("the run does not exist")
}

/// Waits until a run is in a state or has ended.
pub(crate) async fn wait_for_state(load: &Load, id: &TestId, state: RunState) -> Run {
    wait_for(format!("{id} to be {state}"), LIMIT, async || {
        let run = run(load, id).await;
        if run.state == state || run.state.is_final() { Ok(run) } else { Err(run.state) }
    })
    .await
}
