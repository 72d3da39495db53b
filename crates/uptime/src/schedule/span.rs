//! Runs the check of a monitor in a span. The target does not receive the trace context: it may belong to others.

use hob_trace::{SpanKind, attribute, current};

use crate::monitor::Monitor;
use crate::monitor::check::{Check, CheckOutcome, Observation};
use crate::uptime::Uptime;

impl Uptime {
    /// Runs the check of a monitor.
    pub(crate) async fn probe(&self, monitor: &Monitor) -> Observation {
        let mut span = self.inner.context.tracer.span(SpanKind::Client, current());
        let observation = self.inner.probe.run(&monitor.check, &monitor.assertions, monitor.timeout()).await;
        span.describe(|record| {
            let kind = monitor.check.kind();
            record.set_name(format!("check {kind}"));
            record.set(attribute::MONITOR_ID, monitor.id.as_str());
            record.set(attribute::CHECK_KIND, kind.as_str());
            match &monitor.check {
                Check::Http(check) => {
                    record.set(attribute::HTTP_REQUEST_METHOD, check.method.as_str());
                    let host = check.url.host_str().unwrap_or_default();
                    record.set_server(host, check.url.port_or_known_default());
                }
                Check::Tcp(endpoint) | Check::Certificate(endpoint) => {
                    record.set_server(&endpoint.host.to_string(), Some(endpoint.port));
                }
                Check::Dns(_) | Check::Heartbeat(_) => {}
            }
            if let Some(address) = observation.address {
                record.set(attribute::NETWORK_PEER_ADDRESS, address.ip().to_string());
            }
            let (status, result) = match &observation.outcome {
                CheckOutcome::Ok { status_code } => (*status_code, "ok"),
                CheckOutcome::Failed(failure) => {
                    record.fail(failure.class.as_str(), failure.to_string());
                    (failure.status_code.unwrap_or(0), failure.class.as_str())
                }
            };
            record.set(attribute::CHECK_RESULT, result);
            if status != 0 {
                record.set(attribute::HTTP_RESPONSE_STATUS_CODE, status);
            }
        });
        observation
    }
}
