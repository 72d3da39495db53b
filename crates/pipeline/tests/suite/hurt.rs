//! Nodes that vanish and stores that forget, again and again, while a run goes on.

mod slow {
    use std::time::Duration;

    use hob_pipeline::run::RunState;
    use hob_pipeline::standin::{Offer, StandIn};
    use hob_testkit::{Database, LIMIT, Store, budget, run, wait_for};
    use tempfile::TempDir;

    use crate::runs::{begin, ids_in, plan};
    use crate::support::Place;

    /// P8, P12: no item lost, none written twice, the quota never exceeded, and back at work within ten seconds.
    #[test]
    fn everything_arrives_once_whatever_dies() {
        run(async {
            let place = Place::new(Store::redis().await, Database::postgres()).await;
            let dockets = budget(400, 20_000);
            let limits = vec![(60, Duration::from_secs(2))];
            let latency = Duration::from_millis(15);
            let offer = Offer { dockets, entries: 0, page: 50, limits, token: None, latency };
            let api = StandIn::start(offer).await.unwrap();
            let text = plan(&api).replace("1000/1m", "60/2s");
            let folder = TempDir::new().unwrap();
            let mut alive = Some(place.mortal(folder.path()));
            let started = {
                let node = place.node();
                let started = begin(&node.pipelines, &text).await;
                // Only the mortals work, in the one folder.
                let _ = node.stop().await;
                started
            };
            let books = hob_pipeline::Books::new(&place.records);
            let mut round = 0_u64;
            loop {
                round += 1;
                let before = api.served();
                let back = std::time::Instant::now();
                wait_for("work to go on", LIMIT, async || {
                    let over = books.run(&started.id).await.unwrap().state == RunState::Completed;
                    over || api.served() > before + round % 13
                })
                .await;
                // The lease of 8 seconds, and a moment on a busy machine.
                assert!(back.elapsed() < Duration::from_secs(20), "{:?} without a call", back.elapsed());
                if books.run(&started.id).await.unwrap().state == RunState::Completed {
                    break;
                }
                if round.is_multiple_of(3) {
                    place.store.flush_all().await;
                }
                if round.is_multiple_of(4) {
                    drop(alive.take());
                    alive = Some(place.mortal(folder.path()));
                }
            }
            drop(alive);
            assert_eq!(api.throttled(), 0, "the quota was never exceeded");
            let node = place.node_in(folder, place.store.hot().clone());
            assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=dockets).collect());
        });
    }
}
