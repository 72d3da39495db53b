//! What is special about the embedded store, and what any handle reports to the metrics facade.

use std::collections::BTreeSet;

use hob_engine::Engine;
use hob_hot::{Address, Hot, Script, cmd};
use hob_testkit::{LIMIT, run, wait_for};

static ONE: Script = Script::new("return 1");

#[test]
fn an_embedded_store_of_ones_own_forgets_expired_keys_by_itself() {
    run(async {
        let hot = Hot::connect(&Address::Embedded).await.unwrap();
        let calls: Vec<_> = (0..100).map(|at| cmd("SET").arg(at).arg("x").arg("PX").arg(1).into()).collect();
        assert!(hot.batch(&calls).await.iter().all(Result::is_ok));
        wait_for("the keys to be swept", LIMIT, async || hot.run::<i64>(cmd("DBSIZE")).await.unwrap() == 0)
            .await;
        let health = hot.health();
        assert!(health.is_healthy());
        assert_eq!(health.server.unwrap().kind, "embedded");
    });
}

#[test]
fn handles_to_one_engine_share_its_keys_and_its_bus() {
    run(async {
        let engine = Engine::default();
        let (one, other) = (Hot::embedded(&engine), Hot::embedded(&engine));
        one.run::<()>(cmd("SET").arg("k").arg("v")).await.unwrap();
        assert_eq!(other.run::<String>(cmd("GET").arg("k")).await.unwrap(), "v");
        let mut subscription = other.bus().subscribe(&[hob_hot::Topic::channel("c")]).await.unwrap();
        assert_eq!(one.bus().publish("c", "x").await.unwrap(), 1);
        assert!(subscription.next().await.is_some());
    });
}

/// P10: the names are part of the interface, and no label grows with use.
#[test]
fn operations_are_reported_to_the_metrics_facade() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let hot = metrics::with_local_recorder(&recorder, || Hot::embedded(&Engine::default()));
    run(async {
        hot.run::<()>(cmd("SET").arg("k").arg("v")).await.unwrap();
        hot.run::<i64>(ONE.on::<&str>(&[])).await.unwrap();
        hot.batch(&[cmd("GET").arg("k").into()]).await;
    });
    let text = handle.render();
    for kind in ["command", "script", "batch"] {
        let line = format!("hob_hot_operation_seconds_count{{kind=\"{kind}\"}} 1");
        assert!(text.contains(&line), "{text}");
    }
    let names: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.iter().all(|name| name.starts_with("hob_hot_")), "{names:?}");
}
