//! Claims, fences and rows, where a test has to stand in for a node that dies.

use hob_house::Live;
use hob_testkit::{LIMIT, Needs, TestHouse, every_house, wait_for};
use hob_web::Web;

use super::*;
use crate::plan::Format;
use crate::run::Ending;
use crate::spread::Spread;
use crate::{Config, LoadTests, Wish};

const NEEDS: Needs = Needs {
    schemas: &[("schemas/loadtest.toml", include_str!("../../../../schemas/loadtest.toml"))],
    migrations: &[crate::MIGRATIONS],
};

const PLAN: &str = "name = 'x'\ntarget = 'http://127.0.0.1:1'\n[[scenario]]\nname = 's'\n\
                    load = { rate = 1, for = '60s' }\nstep = [{ name = 'a', request = 'GET /' }]";
const LEASE: Duration = Duration::from_secs(5);

async fn queued(house: &TestHouse) -> (LoadTests, TestId) {
    let tests = LoadTests::open(house.house(), Live::fixed(Config::default())).unwrap();
    let plan = tests.add_plan(PLAN, Format::Toml).await.unwrap();
    let crate::Accepted::Run(id) = tests.queue_run(plan, &Wish::default()).await.unwrap() else {
        panic!("not queued")
    };
    (tests, id)
}

fn second(at: u32) -> Second {
    let latencies = Spread::new(vec![(1000, 3)], 3000, 1000, 1000);
    let step = StepSecond { intended: latencies.clone(), actual: latencies, ..StepSecond::default() };
    Second { second: at, steps: [(0, step)].into(), ..Second::default() }
}

every_house! {
    NEEDS;

    /// L9
    async fn a_row_is_written_once_however_often_it_is_tried(house: TestHouse) {
        let (tests, id) = queued(&house).await;
        let run = claim(&house.records, "a", LEASE).await.unwrap().unwrap();
        let number = join(&house.records, &id, run.epoch, "a", LEASE).await.unwrap().unwrap();
        assert_eq!(join(&house.records, &id, run.epoch, "a", LEASE).await.unwrap(), None, "one seat for each node");
        begin(&house.records, &run, Duration::ZERO).await.unwrap();
        let seat = Seat { run: id.clone(), epoch: run.epoch, number, node: "a".into() };
        let seconds = [second(0), second(1)];
        for _ in 0..3 {
            let written = write_seconds(&house.records, &seat, &seconds, RunnerState::Working, "", LEASE).await;
            assert_eq!(written.unwrap(), Standing::In);
        }
        let all = tests.seconds(&run).await.unwrap();
        assert_eq!(all.iter().map(Second::requests).collect::<Vec<_>>(), [3, 3]);
        write_seconds(&house.records, &seat, &[], RunnerState::Done, "", LEASE).await.unwrap();
        let late = write_seconds(&house.records, &seat, &[second(2)], RunnerState::Working, "", LEASE).await;
        assert_eq!(late.unwrap(), Standing::Out, "whoever has left writes nothing more");
        assert_eq!(tests.seconds(&run).await.unwrap().len(), 2);
    }

    /// L7
    async fn a_run_is_claimed_once_and_only_its_conductor_ends_it(house: TestHouse) {
        let (_, id) = queued(&house).await;
        let first = claim(&house.records, "a", Duration::ZERO).await.unwrap().unwrap();
        assert_eq!(claim(&house.records, "b", LEASE).await.unwrap(), None);
        begin(&house.records, &first, Duration::ZERO).await.unwrap();
        let adopted = wait_for("the lease to run out", LIMIT, async || {
            match adopt(&house.records, "b", LEASE).await.unwrap() {
                Some(Orphan::Adopted(run)) => Some(run),
                _ => None,
            }
        }).await;
        assert!(adopted.fence > first.fence && adopted.epoch == first.epoch);
        assert_eq!(hold(&house.records, &first, LEASE).await.unwrap(), None);
        let late = end(&house.records, &first, Ending::Completed, "", "null").await.unwrap();
        assert_eq!(late, Changed::Gone, "a deposed conductor changes nothing");
        let ended = end(&house.records, &adopted, Ending::Completed, "", "null").await.unwrap();
        assert_eq!(ended, Changed::To(State::Completed));
        assert_eq!(house.records.optional(by_id(&id)).await.unwrap().unwrap().state, State::Completed);
    }

    async fn a_run_whose_claimant_died_before_it_began_is_queued_again(house: TestHouse) {
        let (tests, id) = queued(&house).await;
        claim(&house.records, "dead", Duration::ZERO).await.unwrap().unwrap();
        tests.start(Web::open(house.house(), Live::fixed(hob_web::Config::default())).unwrap().changes());
        wait_for("another node to take it", LIMIT, async || {
            let run = tests.run(&id).await.unwrap().unwrap();
            run.state == State::Running && run.holder.as_deref() == Some(house.node.as_str())
        }).await;
        tests.cancel(&id).await.unwrap();
    }

    async fn a_run_whose_node_died_ends_as_lost(house: TestHouse) {
        let (tests, id) = queued(&house).await;
        let run = claim(&house.records, "dead", Duration::ZERO).await.unwrap().unwrap();
        join(&house.records, &id, run.epoch, "dead", Duration::ZERO).await.unwrap().unwrap();
        begin(&house.records, &run, Duration::ZERO).await.unwrap();
        tests.start(Web::open(house.house(), Live::fixed(hob_web::Config::default())).unwrap().changes());
        let begun = std::time::Instant::now();
        let ended = wait_for("a final state", LIMIT, async || {
            tests.run(&id).await.unwrap().filter(|run| run.state.is_final())
        }).await;
        assert_eq!((ended.state, ended.state.public()), (State::Lost, "FAILED"), "{}", ended.message);
        assert!(begun.elapsed() < Duration::from_secs(15));
        assert!(runs_report(&tests, &ended).await);
    }
}

async fn runs_report(tests: &LoadTests, run: &Run) -> bool {
    tests.report(run).await.unwrap().is_some()
}
