//! Traffic by hour in the database: complete, counted once, and kept for a month.

use hob_fixtures::{TestApp, every_service};
use hob_gateway::HourTraffic;
use hob_gateway::keys::Keys;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::kit::{NEEDS, TestInstance};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const SETTINGS: &str = "checkpoint_interval = \"100ms\"\n\
    [[rules]]\nname = \"few\"\nroute = \"/few\"\nwindows = \"1/1h\"\n";

/// The traffic of the last two hours, since the hour may change during a test.
async fn recent(instance: &TestInstance) -> HourTraffic {
    let now = hob_units::unix_ms();
    let hours = instance.gateway.statistics().history(now - 2 * HOUR_MS..now + HOUR_MS).await.unwrap();
    let mut sum = HourTraffic::default();
    for hour in hours {
        assert_eq!(hour.start_unix_ms % HOUR_MS, 0);
        sum.requests += hour.requests;
        sum.limited += hour.limited;
        sum.errors += hour.errors;
        sum.server_errors += hour.server_errors;
        sum.timed += hour.timed;
        sum.time_us += hour.time_us;
    }
    sum
}

/// Waits until the database has this number of requests, limited requests, client errors and server errors.
async fn expect(instance: &TestInstance, counts: [u64; 4]) {
    wait_for(format!("the traffic {counts:?}"), LIMIT, async || {
        let traffic = recent(instance).await;
        let found = [traffic.requests, traffic.limited, traffic.client_errors(), traffic.server_errors];
        if found == counts && traffic.timed == traffic.requests - traffic.limited {
            Ok(())
        } else {
            Err(traffic)
        }
    })
    .await;
}

/// Two successful requests, of which the rule may refuse one, a client error and a server error.
async fn send(instance: &TestInstance) {
    for (path, status) in [("/few", 200), ("/few", 200), ("/missing", 404), ("/broken", 503)] {
        instance.request(Method::GET, path, status).await;
    }
}

every_service! {
    NEEDS;

    async fn traffic_by_hour_survives_the_loss_of_the_store(context: TestContext) {
        let one = TestInstance::start(&context, SETTINGS).await;
        let other = context.another_node().await;
        let two = TestInstance::start(&other, &SETTINGS.replace("100ms", "1h")).await;
        send(&one).await;
        send(&two).await;
        one.expect(8, Keys::requests_total).await;
        context.test_store().flush_all().await;
        // The loss is noticed by the next flush. The rule has lost its count too.
        send(&one).await;
        send(&two).await;
        one.expect(16, Keys::requests_total).await;
        let limited = one.count(Keys::requests_limited).await;
        two.stop().await;
        expect(&one, [16, limited, 4, 4]).await;
        assert!(recent(&one).await.average_ms().is_some());

        one.stop().await;
        context.test_store().flush_all().await;
        let third = context.another_node().await;
        let three = TestInstance::start(&third, SETTINGS).await;
        three.request(Method::GET, "/a", 200).await;
        expect(&three, [17, limited, 4, 4]).await;
        three.stop().await;
    }

    /// A checkpoint that is refused, because the store was lost before it, is counted with a later one.
    async fn traffic_by_hour_is_counted_once(context: TestContext) {
        let instance = TestInstance::start(&context, "checkpoint_interval = \"150ms\"").await;
        for round in 1..=5 {
            for _ in 0..20 {
                instance.request(Method::GET, "/a", 404).await;
            }
            context.test_store().flush_all().await;
            instance.request(Method::GET, "/a", 500).await;
            instance.expect(round * 21, Keys::requests_total).await;
        }
        expect(&instance, [105, 0, 100, 5]).await;
    }

    async fn traffic_by_hour_is_kept_for_a_month(context: TestContext) {
        let now = hob_units::unix_ms();
        let (old, kept) = (now - now % HOUR_MS - 32 * DAY_MS, now - now % HOUR_MS - 30 * DAY_MS);
        context
            .database
            .write(|tx| async move {
                let rows = [old, kept].map(|start| (start, 0_u32, 7_u64, 1_u64, 4_u64, 2_u64, 6_u64, 9000_u64));
                let columns = "INSERT INTO gateway_hour (started_at, shard, requests, limited, errors, server_errors, timed, time_us)";
                tx.insert_all(columns, rows, "").await
            })
            .await
            .unwrap();
        let instance = TestInstance::start(&context, SETTINGS).await;
        let app = TestApp::start(&context, instance.gateway.routes()).await;
        instance.request(Method::GET, "/a", 200).await;
        expect(&instance, [1, 0, 0, 0]).await;
        let history = instance.gateway.statistics().history(0..now + HOUR_MS).await.unwrap();
        assert_eq!(history.iter().map(|hour| hour.start_unix_ms).filter(|start| *start <= kept).collect::<Vec<_>>(), [kept]);

        let get = async |path: &str| app.get(path).await.json::<Value>();
        let hour = &get("/api/v1/gateway/history?days=31").await[0];
        let counts = ["requests", "limited", "client_errors", "server_errors"].map(|name| hour[name].as_u64().unwrap());
        assert_eq!((counts, hour["average_ms"].as_f64()), ([7, 1, 1, 2], Some(1.5)));
        assert_eq!(get("/api/v1/gateway/history?days=1").await.as_array().unwrap().len(), 1);
        for bad in ["days=0", "days=32", "days=x", "hours=1"] {
            assert!(app.get(&format!("/api/v1/gateway/history?{bad}")).await.status.is_client_error(), "{bad}");
        }
        for range in ["7d", "30d"] {
            let page = app.get(&format!("/gateway?range={range}")).await;
            assert_eq!(page.status, StatusCode::OK, "{range}");
            assert!(page.text().contains("Average response time") && !page.text().contains("Distribution"), "{range}");
        }
        assert!(app.get("/gateway?range=24h").await.text().contains("Distribution"));
        // A range that the user has entered stays when the table is sorted or searched.
        let entered = app.get("/gateway?from=2020-01-01T00:00&to=2099-01-01T00:00").await.text();
        assert!(entered.contains("name=\"from\"") && entered.contains("sort=name&#38;from="), "{entered}");
    }
}
