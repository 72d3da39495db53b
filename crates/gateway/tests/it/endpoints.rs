//! Endpoints that are used come back in after a scanner has filled the table.

mod slow {
    use hob_fixtures::every_service;
    use hob_gateway::EndpointStatistics;
    use hob_gateway::keys::Keys;
    use hob_testkit::{LIMIT, wait_for};
    use http::Method;

    use crate::kit::{NEEDS, TestInstance, endpoint};

    const MADE_UP: u64 = 1100;

    /// Waits until the sums over all endpoints are these, with all endpoints within the limit.
    async fn expect_sums(instance: &TestInstance, requests: u64, errors: u64) {
        wait_for(format!("{requests} requests and {errors} errors"), LIMIT, async || {
            let endpoints = instance.gateway.statistics().endpoints().await.unwrap();
            let sum = |read: fn(&EndpointStatistics) -> u64| endpoints.iter().map(read).sum::<u64>();
            let sums = [
                sum(|one| one.requests),
                sum(|one| one.errors),
                sum(|one| one.timed),
                sum(|one| one.server_errors),
            ];
            if sums == [requests, errors, requests, errors] && endpoints.len() <= 1001 {
                Ok(())
            } else {
                Err(sums)
            }
        })
        .await;
    }

    every_service! {
        NEEDS;

        /// G7 G18: made-up paths fill the table, then an endpoint in use replaces one of them. All sums stay exact,
        /// in the store and, after its loss, from the database.
        async fn used_endpoint_replaces_made_up_ones(context: TestContext) {
            let instance = TestInstance::start(&context, "checkpoint_interval = \"100ms\"").await;
            for number in 0..MADE_UP {
                instance.request(Method::GET, &format!("/made/up/{number}"), 500).await;
            }
            expect_sums(&instance, MADE_UP, MADE_UP).await;
            let real = endpoint("GET /real");
            let mut requests = MADE_UP;
            wait_for("the endpoint in use to be counted by its name", LIMIT, async || {
                instance.request(Method::GET, "/real", 200).await;
                requests += 1;
                instance.count(|keys, shard| keys.requests_by_endpoint(&real, shard)).await > 0
            })
            .await;
            instance.expect(requests, Keys::requests_total).await;
            expect_sums(&instance, requests, MADE_UP).await;

            let saved = async |kind: &str| {
                let sum = "SELECT CAST(COALESCE(sum(value), 0) AS BIGINT), count(*) FROM gateway_total WHERE kind = $1";
                let found: (u64, u64) = hob_database::Read::one(
                    &instance.context.database,
                    hob_database::sql(sum).bind(kind),
                )
                .await
                .unwrap();
                found
            };
            wait_for("all counts to be in the database", LIMIT, async || {
                let (endpoints, total) = (saved("endpoint").await, saved("total").await);
                if endpoints.0 == requests && total.0 == requests && endpoints.1 <= 1001 {
                    Ok(())
                } else {
                    Err((endpoints, total))
                }
            })
            .await;
            context.test_store().flush_all().await;
            instance.request(Method::GET, "/real", 200).await;
            instance.expect(requests + 1, Keys::requests_total).await;
            expect_sums(&instance, requests + 1, MADE_UP).await;
        }
    }
}
