//! A node that runs load tests, and a plan for a site on loopback.

use hob_load::plan::Written;
use hob_load::{Accepted, Config, Load, MIGRATIONS, PlanId, Run, State, TestId, Wish};
use hob_service::{Live, ServiceContext};
use hob_testkit::{LIMIT, Needs, wait_for};
use hob_web::Service as _;
use hob_web::Web;

pub(crate) const NEEDS: Needs = Needs {
    schemas: &[("schemas/load.toml", include_str!("../../../../schemas/load.toml"))],
    migrations: &[MIGRATIONS],
};

/// A node that works on runs.
pub(crate) async fn worker(context: &ServiceContext) -> Load {
    let config = Config { threads: 1, ..Config::default() };
    let tests = Load::open(context, Live::fixed(config)).await.unwrap();
    let web = Web::open(context, Live::fixed(hob_web::Config::default())).unwrap();
    tests.start(web.changes());
    tests
}

/// A node that only keeps the queue.
pub(crate) async fn clerk(context: &ServiceContext) -> Load {
    let config = Config { runs_at_once: 0, ..Config::default() };
    Load::open(context, Live::fixed(config)).await.unwrap()
}

/// A plan with a rate for some seconds.
pub(crate) fn plan(url: &str, rate: u32, lasting: &str) -> String {
    format!(
        "name = \"Site check\"\ntarget = \"{url}\"\nthresholds = [\"error_rate < 50%\"]\n\
         [run.smoke]\ngroups = [\"read\"]\nusers = [{{ login = \"ann\" }}, {{ login = \"bob\" }}]\n\
         [[scenario]]\nname = \"browse\"\nload = {{ rate = {rate}, for = \"{lasting}\" }}\n\
         [[scenario.step]]\nname = \"home\"\ngroup = \"read\"\nrequest = \"GET /?who=${{login}}\"\n"
    )
}

pub(crate) async fn add(tests: &Load, url: &str, rate: u32, lasting: &str) -> PlanId {
    tests.add_plan(&Written::toml(plan(url, rate, lasting))).await.unwrap()
}

pub(crate) async fn queue(tests: &Load, plan: PlanId, wish: Wish) -> TestId {
    match tests.queue_run(plan, &wish).await.unwrap() {
        Accepted::Run(id) => id,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn run(tests: &Load, id: &TestId) -> Run {
    tests.run(id).await.unwrap().expect("the run is there")
}

/// Waits until a run is in a state, or past it.
pub(crate) async fn reach(tests: &Load, id: &TestId, state: State) -> Run {
    wait_for(format!("{id} to be {state}"), LIMIT, async || {
        let run = run(tests, id).await;
        if run.state == state || run.state.is_final() { Ok(run) } else { Err(run.state) }
    })
    .await
}
