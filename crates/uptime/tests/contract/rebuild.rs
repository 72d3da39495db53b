//! U9: the store that is lost comes back from the database.

use std::collections::HashSet;
use std::time::Duration;

use hob_store::epoch::Outcome;
use hob_testkit::every_service;
use hob_uptime::incident::{self, News};
use hob_uptime::record::Entry;
use hob_uptime::state::{Standing, State};

use crate::bench::{Bench, GRACE, NEEDS, bad, good};

async fn rebuild(bench: &Bench) {
    for shard in bench.schedule.shards() {
        if let Outcome::Lost { .. } = bench.schedule.claim(shard, 0).await.unwrap() {
            bench.schedule.rebuild(&bench.context.database, shard, GRACE).await.unwrap();
        }
    }
}

every_service! {
    NEEDS;

    /// U9
    async fn who_was_down_is_down_and_nobody_is_up_before_a_check_says_so(context: TestContext) {
        let bench = Bench::new(context).await;
        let up = bench.add("up", |_| {}).await;
        bench.turn(&up, &good()).await;
        let down = bench.add("down", |spec| spec.retries = 0).await;
        let opened = bench.turn(&down, &bad()).await.expect("a change");
        let told = incident::settle(&bench.context.database, &down, &opened, News::Yes).await.unwrap();
        bench.schedule.settle(&opened, told).await.unwrap();
        let incident = bench.hash(bench.schedule.keys().incident(&down.id)).await;
        let last_fence = opened.fence;

        bench.context.test_store().flush_all().await;
        rebuild(&bench).await;
        assert_eq!(bench.hash(bench.schedule.keys().incident(&down.id)).await, incident);
        bench.clock.advance(Duration::from_secs(61));
        let mut claims = bench.claim().await;
        claims.sort_by(|a, b| a.id.cmp(&b.id));
        let states: Vec<State> = claims.iter().map(|claim| claim.standing.state).collect();
        assert_eq!(states, [State::Down, State::Pending]);
        assert!(claims.iter().all(|claim| claim.fence > last_fence), "fences never repeat");

        let (_, change) = bench.record(&down, &claims[0], &bad()).await;
        assert_eq!(change, None, "no second incident");
        assert_eq!(incident::open(&bench.context.database).await.unwrap().len(), 1);
    }

    /// U9
    async fn a_result_from_before_the_loss_is_refused(context: TestContext) {
        let bench = Bench::new(context).await;
        let monitor = bench.add("m1", |_| {}).await;
        let claim = bench.claim_one().await;
        let late = good();
        let entry = Entry::judge(&monitor, &claim, &late, claim.claimed_ms);
        bench.context.test_store().flush_all().await;
        assert!(matches!(bench.schedule.record(&entry).await.unwrap(), Outcome::Lost { found: None }));
        rebuild(&bench).await;
        let refused = bench.schedule.record(&entry).await.unwrap();
        assert!(matches!(refused, Outcome::Done(hob_uptime::record::Recorded::Refused(_))), "{refused:?}");
    }

    /// U9
    async fn the_first_checks_after_a_cold_start_are_spread_over_one_interval(context: TestContext) {
        let bench = Bench::new(context).await;
        for n in 0..60 {
            bench.add(&format!("m{n}"), |_| {}).await;
        }
        bench.context.test_store().flush_all().await;
        rebuild(&bench).await;
        let mut seen = HashSet::new();
        for _ in 0..6 {
            bench.clock.advance(Duration::from_secs(10));
            let before = seen.len();
            // Nobody records what is claimed here, so that leases end and come back.
            seen.extend(bench.claim().await.into_iter().map(|claim| claim.id));
            assert!((1..=25).contains(&(seen.len() - before)), "{} at once", seen.len() - before);
        }
        assert_eq!(seen.len(), 60);
    }

    /// U9
    async fn what_another_node_has_rebuilt_is_taken_up(context: TestContext) {
        let bench = Bench::new(context).await;
        let monitor = bench.add("m1", |_| {}).await;
        let other = bench.another().await;
        bench.context.test_store().flush_all().await;
        rebuild(&bench).await;
        let shard = other.shard_of(&monitor.id);
        let Outcome::Lost { found: Some(_) } = other.claim(shard, 10).await.unwrap() else { panic!("lost") };
        other.rebuild(&bench.context.database, shard, GRACE).await.unwrap();
        bench.clock.advance(Duration::from_secs(61));
        let Outcome::Done(claims) = other.claim(shard, 10).await.unwrap() else { panic!("claims") };
        assert_eq!(claims.claims[0].standing, Standing::NEW);
    }

    /// U9
    async fn two_nodes_that_rebuild_at_once_agree(context: TestContext) {
        let bench = Bench::new(context).await;
        for n in 0..20 {
            bench.add(&format!("m{n}"), |_| {}).await;
        }
        let other = bench.another().await;
        bench.context.test_store().flush_all().await;
        let database = &bench.context.database;
        for shard in bench.schedule.shards() {
            let (mine, others) = tokio::join!(
                bench.schedule.rebuild(database, shard, GRACE),
                other.rebuild(database, shard, GRACE)
            );
            mine.unwrap();
            others.unwrap();
        }
        bench.clock.advance(Duration::from_secs(61));
        assert_eq!(bench.claim().await.len(), 20);
    }
}
