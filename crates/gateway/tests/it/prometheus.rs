//! The metrics that Prometheus reads from an instance.

use hob_testkit::{LIMIT, wait_for};
use http::StatusCode;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::upstream::{TestProxy, Upstream};

#[tokio::test]
async fn metrics_match_the_requests() {
    let metrics = PrometheusBuilder::new().install_recorder().expect("no other test of this process records");
    let upstream = Upstream::start().await;
    let rules = "count_loopback = true\n[[rules]]\nname = \"api\"\nwindows = \"2/1h\"\nroute = \"/api/*\"\n";
    let proxy = TestProxy::start(&[upstream.address], rules).await;
    for _ in 0..2 {
        assert_eq!(proxy.get("/api/a").await.0, StatusCode::OK);
    }
    assert_eq!(proxy.get("/api/a").await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(proxy.get("/status/404").await.0, StatusCode::NOT_FOUND);
    wait_for("the requests", LIMIT, async || {
        let text = metrics.render();
        let has = |line: &str| text.lines().any(|found| found == line);
        let there = has("hob_gateway_requests_total 4")
            && has("hob_gateway_refused_total 1")
            && has("hob_gateway_errors_total 2")
            && has("hob_gateway_response_seconds_count 3")
            && has("hob_gateway_limit_decisions_total{rule=\"api\",decision=\"refused\"} 1");
        if there { Ok(()) } else { Err(text) }
    })
    .await;
}
