//! Keys that another client has replaced by another type, or filled with what cannot be read: the monitors whose they
//! are go on, and all the others never notice. Views are ours, and what an outsider writes there is overwritten.

use std::time::Duration;

use hob_service::Live;
use hob_store::epoch::Outcome;
use hob_store::{Key, cmd};
use hob_testkit::every_service;
use hob_uptime::check::Kind;
use hob_uptime::monitor::{Monitor, MonitorSpec};
use hob_uptime::record::{Recorded, Told};
use hob_uptime::schedule::{Leaving, Turn};
use hob_uptime::state::{Change, State};
use hob_uptime::{Added, Config, Signal, Uptime};
use hob_web::Service as _;

use crate::bench::{Bench, GRACE, NEEDS, bad, good};

/// Replaces a key by a string or, where it is one, by a list.
async fn spoil(bench: &Bench, key: &Key) {
    let kind: String = bench.store().run(cmd("TYPE").arg(key).clone()).await.unwrap();
    let test_store = bench.context.test_store();
    test_store.as_outsider(cmd("DEL").arg(key).clone()).await;
    let spoil = match kind.as_str() {
        "string" => cmd("RPUSH").arg(key).arg("x").clone(),
        _ => cmd("SET").arg(key).arg("x").clone(),
    };
    test_store.as_outsider(spoil).await;
}

/// Plans and checks a monitor as a node does: what it finds lost on the way it rebuilds.
async fn check_again(bench: &Bench, monitor: &Monitor) {
    let schedule = &bench.schedule;
    let shard = schedule.shard_of(&monitor.id);
    let lease = monitor.timeout() + GRACE;
    for _ in 0..3 {
        let next_ms = schedule.now_ms(shard).await.unwrap();
        let turn = Turn { id: &monitor.id, generation: monitor.generation, lease, next_ms };
        let planned = schedule.plan(turn).await.unwrap();
        // Past the next turn, and past a lease that somebody may have.
        bench.clock.advance(Duration::from_secs(120));
        let claimed = schedule.claim(shard, 10).await.unwrap();
        if let (Outcome::Done(_), Outcome::Done(claims)) = (planned, claimed) {
            assert_eq!(claims.claims.len(), 1, "{claims:?}");
            let (recorded, _) = bench.record(monitor, &claims.claims[0], &good()).await;
            assert_eq!(recorded, Recorded::Recorded);
            return;
        }
        schedule.rebuild(&bench.context.database, shard, GRACE).await.unwrap();
    }
    panic!("the shard stays lost");
}

every_service! {
    NEEDS;

    /// U2 U3 U4
    async fn the_next_result_writes_views_of_the_wrong_type_again(context: TestContext) {
        let bench = Bench::new(context).await;
        let monitor = bench.add("m1", |spec| spec.retries = 1).await;
        let keys = bench.schedule.keys();
        let [status, incident, retry] =
            [keys.status(&monitor.id), keys.incident(&monitor.id), keys.retry(&monitor.id)];
        bench.turn(&monitor, &good()).await;
        for key in [&status, &incident, &retry] {
            spoil(&bench, key).await;
        }
        bench.turn(&monitor, &bad()).await;
        assert_eq!(bench.hash(&status).await["state"], "SUSPECT");
        assert_eq!(bench.get(&retry).await.as_deref(), Some("1"));

        spoil(&bench, &incident).await;
        spoil(&bench, &retry).await;
        let opened = bench.turn(&monitor, &bad()).await.expect("a change");
        assert_eq!(opened.change, Change::Opened);
        assert_eq!(bench.hash(&incident).await["failure_count"], "2");
        assert_eq!(bench.get(&retry).await, None);

        spoil(&bench, &incident).await;
        bench.schedule.settle(&opened, Told::Yes).await.unwrap();
        bench.turn(&monitor, &bad()).await;
        assert_eq!(bench.hash(&incident).await["failure_count"], "3");

        spoil(&bench, &status).await;
        bench.schedule.forget(&monitor.id, Leaving::Paused).await.unwrap();
        assert!(bench.hash(&status).await.is_empty());
    }

    /// U1 U7
    async fn a_shared_key_of_the_wrong_type_comes_back(context: TestContext) {
        let bench = Bench::new(context).await;
        let monitor = bench.add("m1", |spec| spec.retries = 0).await;
        let shard = bench.schedule.shard_of(&monitor.id);
        let keys = bench.schedule.keys().clone();
        bench.turn(&monitor, &good()).await;
        for key in [keys.schedule(shard), keys.leases(shard), keys.marker(shard), keys.standing(shard), keys.unsettled(shard)] {
            // What each of them does first must not fail, whoever comes first.
            for first in 0..7 {
                spoil(&bench, &key).await;
                match first {
                    0 => drop(bench.schedule.claim(shard, 10).await.unwrap()),
                    1 => drop(bench.schedule.seize(&monitor.id).await.unwrap()),
                    2 => drop(bench.schedule.board().await.unwrap()),
                    3 => drop(bench.schedule.unsettled(shard).await.unwrap()),
                    4 => drop(bench.schedule.now_ms(shard).await.unwrap()),
                    5 => bench.schedule.forget(&monitor.id, Leaving::Deleted).await.unwrap(),
                    _ => bench.schedule.rebuild(&bench.context.database, shard, GRACE).await.unwrap(),
                }
                check_again(&bench, &monitor).await;
                assert_eq!(bench.schedule.board().await.unwrap().state(&monitor), State::Up);
            }
        }
    }

    /// U1 U7
    async fn a_standing_that_cannot_be_read_stops_no_other_monitor(context: TestContext) {
        let bench = Bench::new(context).await;
        let (spoilt, other) = (bench.add("m1", |_| {}).await, bench.add("m2", |_| {}).await);
        let standing = |monitor: &Monitor| {
            bench.schedule.keys().standing(bench.schedule.shard_of(&monitor.id))
        };
        for text in ["x", "1 2 3", "1 15000 0 0 x"] {
            let spoil = cmd("HSET").arg(standing(&spoilt)).arg("m1").arg(text).clone();
            bench.context.test_store().as_outsider(spoil).await;
            let claims = bench.claim().await;
            assert!(claims.iter().any(|claim| claim.id == other.id), "{text}: {claims:?}");
            // The reconciler plans whom nobody knows any more.
            bench.plan(&spoilt).await;
            for claim in bench.claim().await.iter().chain(&claims) {
                let monitor = if claim.id == other.id { &other } else { &spoilt };
                let generation = claim.generation == monitor.generation;
                if generation {
                    bench.record(monitor, claim, &good()).await;
                }
            }
            bench.clock.advance(Duration::from_secs(61));
            assert_eq!(bench.claim().await.len(), 2, "{text}");
            bench.clock.advance(Duration::from_secs(61));
        }
    }

    /// U7
    async fn a_view_of_the_wrong_type_hides_no_other_monitor(context: TestContext) {
        let bench = Bench::new(context).await;
        let config = Config { concurrency: 0, ..Config::default() };
        let uptime = Uptime::open(bench.context.context(), Live::fixed(config)).await.unwrap();
        let mut ids = Vec::new();
        for (name, kind, target) in [("a", Kind::Tcp, "127.0.0.1:1"), ("b", Kind::Heartbeat, "")] {
            match uptime.add(None, &MonitorSpec::new(name, kind, target)).await.unwrap() {
                Added::Added(monitor) => ids.push(monitor.id.clone()),
                refused => panic!("{refused:?}"),
            }
        }
        let keys = uptime.schedule().keys();
        spoil(&bench, &keys.status(&ids[0])).await;
        let board = uptime.board().await.unwrap();
        let rows = uptime.rows(&board, &uptime.monitors()).await.unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].state, rows[0].status.clone()), (State::Pending, Default::default()));
        // Seen once, it is gone.
        let kind: String = bench.store().run(cmd("TYPE").arg(keys.status(&ids[0])).clone()).await.unwrap();
        assert_eq!(kind, "none");

        // A job can still say that it ended.
        let heartbeat = uptime.monitor(&ids[1]).await.unwrap().unwrap();
        for value in [None, Some("x")] {
            let begun = keys.begun(&ids[1]);
            match value {
                None => spoil(&bench, &begun).await,
                Some(text) => bench.context.test_store().as_outsider(cmd("SET").arg(&begun).arg(text).clone()).await,
            }
            assert!(uptime.signal(heartbeat.token.as_deref().unwrap(), Signal::Done).await.unwrap());
            assert_eq!(bench.get(&begun).await, None);
        }
    }
}
