//! Counts the requests of this instance for its [`Admission`](hob_admission::Admission).

use std::sync::Arc;
use std::time::Instant;

use hob_admission::{EndpointId, RequestCounter, RequestOutcome};
use http::Method;

use crate::traffic::endpoints::Endpoints;
use crate::traffic::meter::Meter;

/// Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrafficCounter {
    pub(crate) meter: Arc<Meter>,
    pub(crate) endpoints: Arc<Endpoints>,
}

impl RequestCounter for TrafficCounter {
    fn endpoint(&self, method: &Method, path: &str) -> EndpointId {
        self.endpoints.id(method, path)
    }

    fn record(
        &self,
        endpoint: EndpointId,
        status: u16,
        outcome: RequestOutcome,
        started: Instant,
        answered: Instant,
    ) {
        self.meter.record(endpoint, status, outcome, started, answered);
    }
}
