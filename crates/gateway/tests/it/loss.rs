//! Totals survive the loss of the store and restarts, and nothing is counted twice.

use std::time::Duration;

use hob_fixtures::{Layout, Server, TestContext, every_service};
use hob_gateway::keys::{InstanceId, Keys};
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};
use http::Method;

use crate::kit::{NEEDS, TestInstance, endpoint};

const SAVES_OFTEN: &str = "checkpoint_interval = \"100ms\"";
const NEVER_SAVES: &str = "checkpoint_interval = \"1h\"";

async fn saved(instance: &TestInstance, total: u64) {
    wait_for(format!("{total} to be in the database"), LIMIT, async || {
        let sum = "SELECT CAST(COALESCE(sum(value), 0) AS BIGINT) FROM gateway_total WHERE kind = 'total'";
        let (found,): (u64,) =
            hob_database::Read::one(&instance.context.database, hob_database::sql(sum)).await.unwrap();
        if found == total { Ok(()) } else { Err(found) }
    })
    .await;
}

/// The embedded engine is lost with the process, so counts reach the database soon, whatever the interval is.
#[tokio::test(flavor = "multi_thread")]
async fn counts_on_the_embedded_engine_are_saved_early() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let instance = TestInstance::start(&context, "checkpoint_interval = \"1h\"").await;
    for _ in 0..300 {
        instance.request(Method::GET, "/a", 200).await;
    }
    saved(&instance, 300).await;
}

/// G3 G7 G12: Redis evicts single counters, and the marker of the shard stays.
#[test]
fn evicted_totals_are_restored() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let Server::Redis(redis) = context.test_store().server() else { unreachable!("it is redis-server") };
        let instance = TestInstance::start(&context, SAVES_OFTEN).await;
        let send = async |count: u32| {
            for _ in 0..count {
                instance.request(Method::GET, "/a", 404).await;
            }
        };
        send(10).await;
        instance.expect(10, Keys::requests_total).await;
        saved(&instance, 10).await;
        let a = endpoint("GET /a");
        let by_endpoint = |keys: &Keys, shard| keys.requests_by_endpoint(&a, shard);
        for key in [instance.find(Keys::requests_total).await, instance.find(by_endpoint).await] {
            context.test_store().as_outsider(cmd("DEL").arg(key.as_bytes()).clone()).await;
        }
        send(1).await;
        // Until the instance has looked twice how many keys were evicted.
        wait_for("the total to be restored", LIMIT, async || {
            redis.evict_keys();
            let found = instance.count(Keys::requests_total).await;
            if found == 11 { Ok(()) } else { Err(found) }
        })
        .await;
        send(1).await;
        instance.expect(12, Keys::requests_total).await;
        instance.expect(12, by_endpoint).await;
        instance.expect(12, Keys::errors_total).await;
        instance.stop().await;
    });
}

every_service! {
    NEEDS;

    /// G3–G15 survive FLUSHALL: saved counts are restored, the others are flushed again.
    async fn totals_survive_the_loss_of_the_store(context: TestContext) {
        let one = TestInstance::start(&context, SAVES_OFTEN).await;
        let other = context.another_node().await;
        let two = TestInstance::start(&other, NEVER_SAVES).await;
        let third = context.another_node().await;
        let three = TestInstance::start(&third, SAVES_OFTEN).await;
        for _ in 0..10 {
            one.request(Method::GET, "/a", 200).await;
            two.request(Method::GET, "/b", 500).await;
            three.request(Method::GET, "/c", 404).await;
        }
        one.expect(30, Keys::requests_total).await;
        three.stop().await;
        saved(&one, 20).await;
        context.test_store().flush_all().await;
        one.request(Method::GET, "/a", 200).await;
        two.request(Method::GET, "/b", 500).await;
        let (a, b, c) = (endpoint("GET /a"), endpoint("GET /b"), endpoint("GET /c"));
        one.expect(11, |keys, shard| keys.requests_by_endpoint(&a, shard)).await;
        one.expect(11, |keys, shard| keys.errors_by_endpoint(&b, shard)).await;
        one.expect(11, |keys, shard| keys.response_count(&b, shard)).await;
        one.expect(32, Keys::requests_total).await;
        one.expect(21, Keys::errors_total).await;
        one.expect(11, Keys::server_errors).await;
        one.expect(11, |keys, shard| keys.server_errors_by_endpoint(&b, shard)).await;
        // The totals of a stopped instance are restored too, though no other instance writes to its shard.
        one.expect(10, |keys, shard| keys.requests_by_endpoint(&c, shard)).await;
        let third = InstanceId::new(third.node.as_str()).unwrap();
        one.expect(10, |keys, shard| keys.requests_by_instance(&third, shard)).await;
        two.stop().await;
    }

    /// A clean stop loses nothing, and a restart continues the totals, also on an empty store.
    async fn totals_survive_a_restart_on_an_empty_store(context: TestContext) {
        let first = context.another_node().await;
        let first = TestInstance::start(&first, "instance = \"gw\"\ncheckpoint_interval = \"1h\"").await;
        for _ in 0..7 {
            first.request(Method::GET, "/a", 500).await;
        }
        first.stop().await;
        first.expect(7, Keys::requests_total).await;
        context.test_store().flush_all().await;
        let second = TestInstance::start(&context, "instance = \"gw\"").await;
        second.request(Method::GET, "/a", 200).await;
        second.expect(8, Keys::requests_total).await;
        second.expect(7, Keys::errors_total).await;
        second.expect(8, |keys, shard| keys.response_count(&endpoint("GET /a"), shard)).await;
        let gw = InstanceId::new("gw").unwrap();
        second.expect(8, |keys, shard| keys.requests_by_instance(&gw, shard)).await;
    }

    /// G13: instances send the response times of the last hour again, and none of them twice.
    async fn response_times_survive_the_loss_of_the_store(context: TestContext) {
        let instance = TestInstance::start(&context, NEVER_SAVES).await;
        let a = endpoint("GET /a");
        for _ in 0..20 {
            instance.request(Method::GET, "/a", 200).await;
        }
        instance.expect(20, |keys, shard| keys.response_count(&a, shard)).await;
        let timed = async |count: u64| {
            wait_for(format!("{count} response times"), LIMIT, async || {
                let statistics = instance.gateway.statistics();
                let (all, one) = (statistics.latency(None, 60).await.unwrap(), statistics.latency(Some(&a), 60).await.unwrap());
                let sum = |minutes: &[hob_gateway::MinuteLatency]| {
                    minutes.iter().map(|minute| minute.histogram.count()).sum::<u64>()
                };
                let times = instance.find(|keys, shard| keys.response_times(&a, shard)).await;
                let found = (sum(&all), sum(&one), instance.read::<u64>("ZCARD", &times).await);
                if found == (count, count, count) { Ok(()) } else { Err(found) }
            })
            .await;
        };
        timed(20).await;
        context.test_store().flush_all().await;
        instance.request(Method::GET, "/a", 200).await;
        instance.expect(21, |keys, shard| keys.response_count(&a, shard)).await;
        timed(21).await;
        let marker = instance.find(Keys::marker).await;
        instance.context.store.run::<u64>(cmd("DEL").arg(marker.as_bytes())).await.unwrap();
        instance.request(Method::GET, "/a", 200).await;
        instance.expect(22, |keys, shard| keys.response_count(&a, shard)).await;
        timed(22).await;
    }

    /// Losing the store repeatedly, with counts in flight, changes no total.
    async fn repeated_losses_change_no_total(context: TestContext) {
        let instance = TestInstance::start(&context, "checkpoint_interval = \"150ms\"").await;
        for round in 1..=5 {
            for _ in 0..20 {
                instance.request(Method::GET, "/a", 200).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            context.test_store().flush_all().await;
            instance.request(Method::GET, "/a", 200).await;
            instance.expect(round * 21, Keys::requests_total).await;
        }
        instance.expect(105, |keys, shard| keys.requests_by_endpoint(&endpoint("GET /a"), shard)).await;
    }

    /// Several instances that find the store lost at the same time try to restore it while others flush and save.
    async fn concurrent_restores_count_everything_once(context: TestContext) {
        let mut nodes = vec![context.context().clone()];
        for _ in 0..4 {
            nodes.push(context.another_node().await);
        }
        let toml = ["checkpoint_interval = \"10ms\"", SAVES_OFTEN, NEVER_SAVES];
        let starts = nodes.iter().zip(toml.iter().cycle()).map(|(node, toml)| TestInstance::start(node, toml));
        let instances = futures_util::future::join_all(starts).await;
        for round in 1..=4 {
            for (number, instance) in instances.iter().enumerate() {
                for _ in 0..10 {
                    instance.request(Method::GET, &format!("/{number}"), 200).await;
                }
            }
            let count = instances.len() as u64;
            instances[0].expect(round * count * 10, Keys::requests_total).await;
            for (number, instance) in instances.iter().enumerate() {
                let (name, id) = (endpoint(&format!("GET /{number}")), InstanceId::new(nodes[number].node.as_str()));
                let id = id.unwrap();
                instance.expect(round * 10, |keys, shard| keys.requests_by_endpoint(&name, shard)).await;
                instance.expect(round * 10, |keys, shard| keys.requests_by_instance(&id, shard)).await;
            }
            context.test_store().flush_all().await;
        }
        for instance in &instances[1..] {
            instance.stop().await;
        }
    }

    /// Only the marker is lost: counters that still exist are not added to the restored ones.
    async fn partial_loss_counts_nothing_twice(context: TestContext) {
        let instance = TestInstance::start(&context, NEVER_SAVES).await;
        for _ in 0..5 {
            instance.request(Method::GET, "/a", 404).await;
        }
        instance.expect(5, Keys::requests_total).await;
        let marker = instance.find(Keys::marker).await;
        instance.context.store.run::<u64>(cmd("DEL").arg(marker.as_bytes())).await.unwrap();
        instance.request(Method::GET, "/a", 404).await;
        instance.expect(6, |keys, shard| keys.requests_by_endpoint(&endpoint("GET /a"), shard)).await;
        instance.expect(6, Keys::errors_total).await;
    }
}
