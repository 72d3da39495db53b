//! The endpoints that this instance counts by name. There are at most 1,000, so that made-up paths cannot fill the
//! memory; all others count as `other`. The coldest ones make room for hotter ones, so that a scanner cannot keep the
//! endpoints of the service out.

use std::collections::HashMap;

use hob_admission::EndpointId;
use hob_units::RecentMap;
use http::Method;
use parking_lot::{Mutex, RwLock};

use crate::keys::{self, Keys};
use crate::traffic::counts::Counts;

/// Endpoints without a name whose requests are counted, to find the hot ones.
const MAX_CANDIDATES: usize = 1024;

/// Longer names are not valid in keys.
const MAX_NAME_BYTES: usize = 512;

/// The heat of one request. Each rotation, an endpoint loses an eighth of its heat.
const HEAT: u64 = 1024;
const COOLING_DIVISOR: u64 = 8;

/// Endpoints that one rotation replaces.
const MAX_ROTATED: usize = 100;

/// Names of replaced endpoints that are kept, because some of their counts are not saved yet.
const MAX_RETIRED: usize = 1000;

/// The endpoints that this instance counts by name.
#[derive(Debug)]
pub struct Endpoints {
    known: RwLock<KnownEndpoints>,
    /// The heat of endpoints that have no separate name, because the table is full.
    candidates: Mutex<RecentMap<String, u64>>,
}

#[derive(Debug, Default)]
struct KnownEndpoints {
    by_method: HashMap<Method, HashMap<Box<str>, EndpointId>>,
    named: HashMap<EndpointId, NamedEndpoint>,
    retired: HashMap<EndpointId, keys::Endpoint>,
    last_id: u32,
}

#[derive(Debug)]
struct NamedEndpoint {
    name: keys::Endpoint,
    method: Method,
    path: Box<str>,
    heat: u64,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self { known: RwLock::default(), candidates: Mutex::new(RecentMap::new(MAX_CANDIDATES)) }
    }
}

impl Endpoints {
    /// The id of an endpoint. A new endpoint gets one while there is room, otherwise [`EndpointId::OTHER`].
    pub fn id(&self, method: &Method, path: &str) -> EndpointId {
        let known = self.known.read();
        if let Some(id) = known.find(method, path) {
            return id;
        }
        let is_full = known.is_full();
        drop(known);
        if method.as_str().len() + path.len() >= MAX_NAME_BYTES {
            return EndpointId::OTHER;
        }
        let name = format!("{method} {path}");
        if is_full {
            *self.candidates.lock().get_or_insert(&name, || 0) += HEAT;
            return EndpointId::OTHER;
        }
        let mut known = self.known.write();
        known.find(method, path).or_else(|| known.add(&name, 0)).unwrap_or(EndpointId::OTHER)
    }

    /// The endpoint's name; `other` if it is not known any more.
    pub(crate) fn name(&self, id: EndpointId) -> keys::Endpoint {
        let known = self.known.read();
        let name = known.named.get(&id).map(|endpoint| &endpoint.name).or_else(|| known.retired.get(&id));
        name.cloned().unwrap_or_else(|| keys::Endpoint::new("other").expect("a valid endpoint"))
    }

    /// Whether counts of this endpoint can be stored under its name.
    pub(crate) fn has_name(&self, id: EndpointId) -> bool {
        let known = self.known.read();
        id == EndpointId::OTHER || known.named.contains_key(&id) || known.retired.contains_key(&id)
    }

    /// Whether requests are counted by this endpoint's name from now on.
    pub(crate) fn is_current(&self, id: EndpointId) -> bool {
        id == EndpointId::OTHER || self.known.read().named.contains_key(&id)
    }

    /// Adds the heat of requests.
    pub(crate) fn heat(&self, counts: &Counts) {
        let mut known = self.known.write();
        for (id, counted) in &counts.endpoints {
            if let Some(endpoint) = known.named.get_mut(id) {
                endpoint.heat = endpoint.heat.saturating_add(counted.totals.requests.saturating_mul(HEAT));
            }
        }
    }

    /// Replaces cold endpoints by hotter candidates, and cools all. Returns the replaced ones, which keep their name
    /// until [`Endpoints::retain_retired`].
    pub(crate) fn rotate(&self) -> Vec<EndpointId> {
        let (mut known, mut candidates) = (self.known.write(), self.candidates.lock());
        let is_valid = |(name, heat): &(&String, &u64)| **heat > HEAT && keys::Endpoint::new(name).is_ok();
        let mut hottest: Vec<(u64, String)> =
            candidates.iter().filter(is_valid).map(|(name, heat)| (*heat, name.clone())).collect();
        hottest.sort_unstable_by(|one, other| other.cmp(one));
        let mut coldest: Vec<(u64, EndpointId)> = if hottest.is_empty() {
            Vec::new()
        } else {
            known.named.iter().map(|(id, endpoint)| (endpoint.heat, *id)).collect()
        };
        coldest.sort_unstable();
        let room = MAX_ROTATED.min(MAX_RETIRED.saturating_sub(known.retired.len()));
        let mut retired = Vec::new();
        for ((hot, name), (cold, id)) in hottest.into_iter().zip(coldest).take(room) {
            // Endpoints with one request each do not replace each other.
            if hot <= cold + HEAT {
                break;
            }
            known.retire(id);
            known.add(&name, hot);
            candidates.remove(&name);
            retired.push(id);
        }
        let heats = known.named.values_mut().map(|endpoint| &mut endpoint.heat);
        heats.chain(candidates.values_mut()).for_each(|heat| *heat -= heat.div_ceil(COOLING_DIVISOR));
        retired
    }

    /// Forgets the names of replaced endpoints that are not used any more.
    pub(crate) fn retain_retired(&self, is_used: impl Fn(EndpointId) -> bool) {
        self.known.write().retired.retain(|id, _| is_used(*id));
    }
}

impl KnownEndpoints {
    fn find(&self, method: &Method, path: &str) -> Option<EndpointId> {
        self.by_method.get(method)?.get(path).copied()
    }

    fn is_full(&self) -> bool {
        self.named.len() as u64 >= Keys::ENDPOINTS_MAX_LEN
    }

    /// Adds an endpoint if there is room.
    fn add(&mut self, name: &str, heat: u64) -> Option<EndpointId> {
        if self.is_full() {
            return None;
        }
        let (method, path) = name.split_once(' ')?;
        let (method, path): (Method, Box<str>) = (method.parse().ok()?, path.into());
        let name = keys::Endpoint::new(name).ok()?;
        let id = EndpointId(self.last_id.checked_add(1)?);
        self.last_id = id.0;
        self.by_method.entry(method.clone()).or_default().insert(path.clone(), id);
        self.named.insert(id, NamedEndpoint { name, method, path, heat });
        Some(id)
    }

    fn retire(&mut self, id: EndpointId) {
        let Some(endpoint) = self.named.remove(&id) else { return };
        if let Some(paths) = self.by_method.get_mut(&endpoint.method) {
            paths.remove(&endpoint.path);
        }
        self.retired.insert(id, endpoint.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_admission::RequestOutcome;

    use crate::traffic::meter::Sample;

    /// Sends requests to a path, and counts them as the publisher does.
    fn request(endpoints: &Endpoints, path: &str, requests: u32) {
        let mut counts = Counts::default();
        for _ in 0..requests {
            let endpoint = endpoints.id(&Method::GET, path);
            let outcome = RequestOutcome::Allowed;
            counts.add(&Sample { endpoint, status: 200, outcome, took_us: 1, at_ms: 0 });
        }
        endpoints.heat(&counts);
    }

    fn is_named(endpoints: &Endpoints, path: &str) -> bool {
        endpoints.known.read().find(&Method::GET, path).is_some()
    }

    /// G7: any number of made-up paths become 1,000 endpoints and `other`.
    #[test]
    fn number_of_endpoints_is_bounded() {
        let endpoints = Endpoints::default();
        for number in 0..100_000 {
            endpoints.id(&Method::GET, &format!("/made/up/{number}"));
        }
        assert_eq!(endpoints.known.read().named.len(), 1000);
        assert!(endpoints.candidates.lock().len() <= MAX_CANDIDATES);
        assert_eq!(endpoints.id(&Method::GET, "/another"), EndpointId::OTHER);
        assert_eq!(endpoints.name(endpoints.id(&Method::GET, "/made/up/7")).as_str(), "GET /made/up/7");
    }

    #[test]
    fn endpoints_that_are_not_valid_in_a_key_count_as_other() {
        let endpoints = Endpoints::default();
        let long = format!("/{}", "x".repeat(600));
        assert_eq!(endpoints.id(&Method::GET, &long), EndpointId::OTHER);
        assert_eq!(endpoints.id(&"lower_case".parse().unwrap(), "/"), EndpointId::OTHER);
        assert_eq!(endpoints.name(EndpointId::OTHER).as_str(), "other");
    }

    /// A scanner fills the table. Endpoints in use stay, and others come in when they are used.
    #[test]
    fn hot_endpoints_replace_cold_ones() {
        let endpoints = Endpoints::default();
        request(&endpoints, "/used", 50);
        for number in 0..2000 {
            request(&endpoints, &format!("/made/up/{number}"), 1);
        }
        assert!(!is_named(&endpoints, "/real"));
        request(&endpoints, "/real", 5);
        let retired = endpoints.rotate();
        assert!(is_named(&endpoints, "/real") && is_named(&endpoints, "/used"));
        assert_eq!(retired.len(), 1);
        assert_eq!(endpoints.known.read().named.len(), 1000);
        // Counts that are on their way still have their name.
        assert!(endpoints.name(retired[0]).as_str().starts_with("GET /made/up/"));
        endpoints.retain_retired(|_| false);
        assert!(!endpoints.has_name(retired[0]));
        assert_eq!(endpoints.name(retired[0]).as_str(), "other");
        // Paths that are requested once replace nothing, and the id is not used again.
        for _ in 0..20 {
            for number in 0..2000 {
                request(&endpoints, &format!("/more/made/up/{number}"), 1);
            }
            request(&endpoints, "/used", 1);
            request(&endpoints, "/real", 1);
            assert!(!endpoints.rotate().contains(&retired[0]));
            assert!(is_named(&endpoints, "/real") && is_named(&endpoints, "/used"));
        }
    }
}
