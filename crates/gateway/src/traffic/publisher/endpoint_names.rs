//! The names of endpoints in shared counters: their own, or `other` once the store has the maximum number of endpoints.

use std::collections::HashMap;
use std::sync::Arc;

use hob_admission::EndpointId;

use crate::keys::Endpoint;
use crate::traffic::counts::Counts;
use crate::traffic::endpoints::Endpoints;

#[derive(Debug)]
pub(crate) struct EndpointNames {
    endpoints: Arc<Endpoints>,
    /// Endpoints that the store has no room for, and how many of their requests were counted as `other`.
    as_other: HashMap<EndpointId, u64>,
}

impl EndpointNames {
    pub(crate) fn new(endpoints: Arc<Endpoints>) -> Self {
        Self { endpoints, as_other: HashMap::new() }
    }

    pub(crate) fn name(&self, endpoint: EndpointId) -> Endpoint {
        self.endpoints.name(endpoint)
    }

    /// Counts these endpoints as `other` from now on.
    pub(crate) fn count_as_other(&mut self, endpoints: &[EndpointId]) {
        for endpoint in endpoints {
            self.as_other.entry(*endpoint).or_default();
        }
    }

    /// Counts these endpoints by their own name again.
    pub(crate) fn count_by_name(&mut self, endpoints: &[EndpointId]) {
        self.as_other.retain(|endpoint, _| !endpoints.contains(endpoint));
    }

    /// The endpoints that are counted as `other`, by their number of requests.
    pub(crate) fn hottest_unnamed(&self) -> Vec<(u64, EndpointId)> {
        let mut unnamed: Vec<(u64, EndpointId)> =
            self.as_other.iter().map(|(endpoint, requests)| (*requests, *endpoint)).collect();
        unnamed.sort_unstable_by(|one, other| other.cmp(one));
        unnamed
    }

    /// Moves the counts of such endpoints to `other`.
    pub(crate) fn fold_unnamed(&mut self, counts: &mut Counts) {
        let is_unnamed = |endpoint: &EndpointId| {
            self.as_other.contains_key(endpoint) || !self.endpoints.has_name(*endpoint)
        };
        let folded: Vec<EndpointId> = counts.endpoints.keys().copied().filter(is_unnamed).collect();
        for endpoint in folded {
            let requests = counts.fold_into_other(endpoint);
            if let Some(counted) = self.as_other.get_mut(&endpoint) {
                *counted += requests;
            }
        }
    }
}
