//! Finding out, and keeping up with, which master of a Cluster owns which slots.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::address::Host;
use crate::backoff::Backoff;
use crate::dial::{CONNECT_LIMIT, Dialer};
use crate::error::{Error, Result};
use crate::link::{Link, Target};
use crate::meter::Meter;
use crate::slot::Route;
use crate::slot_map::SlotMap;

/// The least time between two looks at the map.
const PAUSE: Duration = Duration::from_millis(50);
/// How often it is read without any sign of change.
const SURVEY_EVERY: Duration = Duration::from_secs(30);

/// The map of a cluster and the links to its masters.
pub(crate) struct Survey {
    seeds: Vec<Host>,
    dialer: Dialer,
    meter: Arc<Meter>,
    map: watch::Sender<Map>,
    stale: Notify,
}

/// What is known of a cluster: nothing and why, or a map with a link for each master.
#[derive(Clone)]
pub(crate) enum Map {
    Unknown(Arc<str>),
    Known(Arc<Known>),
}

/// A map, and a link for each master on it.
pub(crate) struct Known {
    pub(crate) slots: SlotMap,
    pub(crate) links: HashMap<Host, Arc<Link>>,
}

impl Known {
    /// The master that a route leads to.
    pub(crate) fn host(&self, route: Route) -> Option<&Host> {
        match route {
            Route::Slot(slot) => self.slots.owner(slot),
            Route::Near(slot) => {
                let near = self.slots.owner(slot);
                let up = |host: &&Host| self.links.get(*host).is_some_and(|link| link.is_up());
                near.filter(up).or_else(|| self.slots.masters().iter().find(up)).or(near)
            }
        }
    }
}

impl Survey {
    pub(crate) fn new(seeds: Vec<Host>, dialer: Dialer, meter: Arc<Meter>) -> Self {
        let map = watch::Sender::new(Map::Unknown("not connected yet".into()));
        Self { seeds, dialer, meter, map, stale: Notify::new() }
    }

    /// What is known at this moment.
    pub(crate) fn map(&self) -> Map {
        self.map.borrow().clone()
    }

    /// Asks for the map to be read again soon.
    pub(crate) fn mark_stale(&self) {
        self.stale.notify_one();
    }

    /// All nodes worth trying, masters first.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        let masters = match self.map() {
            Map::Known(known) => known.slots.masters().to_vec(),
            Map::Unknown(_) => Vec::new(),
        };
        let seeds = self.seeds.iter().filter(|seed| !masters.contains(seed));
        masters.iter().chain(seeds).cloned().collect()
    }

    /// The map, once there is one.
    pub(crate) async fn known(&self, deadline: Instant) -> Result<Arc<Known>> {
        if let Map::Known(known) = &*self.map.borrow() {
            return Ok(known.clone());
        }
        let asked = Instant::now();
        let mut map = self.map.subscribe();
        let known = map.wait_for(|map| matches!(map, Map::Known(_)));
        if let Ok(Ok(map)) = timeout_at(deadline, known).await
            && let Map::Known(known) = &*map
        {
            return Ok(known.clone());
        }
        let reason = match &*self.map.borrow() {
            Map::Unknown(reason) => reason.to_string(),
            Map::Known(_) => "connected too late".to_owned(),
        };
        Err(Error::Unavailable { waited: asked.elapsed(), reason })
    }

    /// A link to a node that a redirection named, known or not.
    pub(crate) fn link_to(&self, host: &Host) -> Arc<Link> {
        let mut found = None;
        self.map.send_if_modified(|map| {
            let Map::Known(known) = map else { return false };
            if let Some(link) = known.links.get(host) {
                found = Some(link.clone());
                return false;
            }
            let link = Arc::new(self.open_link(host));
            found = Some(link.clone());
            let mut links = known.links.clone();
            links.insert(host.clone(), link);
            *map = Map::Known(Arc::new(Known { slots: known.slots.clone(), links }));
            true
        });
        found.unwrap_or_else(|| Arc::new(self.open_link(host)))
    }

    fn open_link(&self, host: &Host) -> Link {
        Link::open(Target::Host(host.clone()), self.dialer.clone(), self.meter.clone())
    }

    /// Reads the map at the start, at every sign of change, and now and then.
    pub(crate) async fn keep_map(self: Arc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            match self.survey().await {
                Ok(slots) => {
                    backoff.reset();
                    self.publish(slots);
                    sleep(PAUSE).await;
                    let _ = timeout(SURVEY_EVERY, self.stale.notified()).await;
                }
                Err(reason) => {
                    self.meter.last_error(&reason);
                    self.map.send_if_modified(|map| match map {
                        Map::Unknown(old) => {
                            *old = reason.into();
                            true
                        }
                        Map::Known(_) => false,
                    });
                    sleep(backoff.next()).await;
                }
            }
        }
    }

    /// Asks the masters that we have connections to, then the seeds, and takes the first map.
    async fn survey(&self) -> Result<SlotMap, String> {
        let mut said = Vec::new();
        let links: Vec<(Host, Arc<Link>)> = match &*self.map.borrow() {
            Map::Known(known) => {
                known.links.iter().map(|(host, link)| (host.clone(), link.clone())).collect()
            }
            Map::Unknown(_) => Vec::new(),
        };
        let question = SlotMap::question();
        for (host, link) in links.iter().filter(|(_, link)| link.is_up()) {
            let answer = link.send(&question, Instant::now() + CONNECT_LIMIT).await;
            match answer.and_then(|value| SlotMap::read(value, host)) {
                Ok(slots) => return Ok(slots),
                Err(error) => said.push(format!("{host}: {error}")),
            }
        }
        for host in &self.seeds {
            match timeout(CONNECT_LIMIT, self.ask_seed(host)).await {
                Ok(Ok(slots)) => return Ok(slots),
                Ok(Err(reason)) => said.push(format!("{host}: {reason}")),
                Err(_) => said.push(format!("{host}: no answer within {CONNECT_LIMIT:?}")),
            }
        }
        Err(format!("no node tells the cluster's slots: {}", said.join("; ")))
    }

    async fn ask_seed(&self, host: &Host) -> Result<SlotMap, String> {
        self.meter.connecting();
        let question = SlotMap::question();
        let asked = async {
            let (mut connection, driver) = self.dialer.commands(host).await?;
            tokio::select! {
                answer = question.query_async(&mut connection) => answer,
                () = driver => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
            }
        };
        let answer =
            asked.await.inspect_err(|_| self.meter.connect_failed()).map_err(|error| error.to_string())?;
        SlotMap::read(answer, host).map_err(|error| error.to_string())
    }

    /// Takes a new map over, with the links of masters that stay; links of others end with their last user.
    fn publish(&self, slots: SlotMap) {
        self.map.send_if_modified(|map| {
            let old = match map {
                Map::Known(known) if known.slots == slots && known.links.len() == slots.masters().len() => {
                    return false;
                }
                Map::Known(known) => known.links.clone(),
                Map::Unknown(_) => HashMap::new(),
            };
            let link = |host: &Host| old.get(host).cloned().unwrap_or_else(|| Arc::new(self.open_link(host)));
            let links = slots.masters().iter().map(|host| (host.clone(), link(host))).collect();
            *map = Map::Known(Arc::new(Known { slots, links }));
            true
        });
    }
}
