//! The names of endpoints in shared counters: their own, or `other` once the store has the maximum number of endpoints.

use std::collections::HashSet;
use std::sync::Arc;

use crate::admission::endpoint::{EndpointId, Endpoints};
use crate::keys::Endpoint;
use crate::traffic::counts::Counts;

#[derive(Debug)]
pub(crate) struct EndpointNames {
    endpoints: Arc<Endpoints>,
    as_other: HashSet<EndpointId>,
}

impl EndpointNames {
    pub(crate) fn new(endpoints: Arc<Endpoints>) -> Self {
        Self { endpoints, as_other: HashSet::new() }
    }

    pub(crate) fn name(&self, endpoint: EndpointId) -> Endpoint {
        self.endpoints.name(endpoint)
    }

    /// Counts these endpoints as `other` from now on.
    pub(crate) fn count_as_other(&mut self, endpoints: &[EndpointId]) {
        self.as_other.extend(endpoints);
    }

    /// Moves the counts of such endpoints to `other`.
    pub(crate) fn fold_unnamed(&self, counts: &mut Counts) {
        if self.as_other.is_empty() {
            return;
        }
        let folded: Vec<EndpointId> =
            counts.endpoints.keys().filter(|endpoint| self.as_other.contains(endpoint)).copied().collect();
        folded.into_iter().for_each(|endpoint| counts.fold_into_other(endpoint));
    }
}
