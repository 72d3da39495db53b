//! Discovers which master of a Cluster owns which slots, and keeps that map current.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::address::Host;
use crate::connection::backoff::RECONNECT;
use crate::connection::deadline::{Deadline, Down};
use crate::connection::dial::{CONNECT_LIMIT, Dialer};
use crate::connection::route::Route;
use crate::connection::server::{ServerConnection, Target};
use crate::connection::slots::SlotMap;
use crate::error::{Error, Result};
use crate::health::meter::Meter;

/// The minimum time between two reads of the slot map.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the slot map is read if there are no signs of a change.
const SURVEY_EVERY: Duration = Duration::from_secs(30);

/// The slot map of a cluster and the connections to its masters.
pub(crate) struct Topology {
    seeds: Vec<Host>,
    dialer: Dialer,
    meter: Arc<Meter>,
    map: watch::Sender<Map>,
    stale: Notify,
}

/// The slot map, or the reason why it is unknown.
#[derive(Clone)]
pub(crate) enum Map {
    Unknown(Down),
    KnownMap(Arc<KnownMap>),
}

/// A slot map and a connection to each of its masters.
pub(crate) struct KnownMap {
    pub(crate) slots: SlotMap,
    pub(crate) connections: HashMap<Host, Arc<ServerConnection>>,
}

impl KnownMap {
    /// The master for a route.
    pub(crate) fn host(&self, route: Route) -> Option<&Host> {
        match route {
            Route::Slot(slot) => self.slots.owner(slot),
            Route::Near(slot) => {
                let near = self.slots.owner(slot);
                let up =
                    |host: &&Host| self.connections.get(*host).is_some_and(|connection| connection.is_up());
                near.filter(up).or_else(|| self.slots.masters().iter().find(up)).or(near)
            }
        }
    }
}

impl Topology {
    pub(crate) fn new(seeds: Vec<Host>, dialer: Dialer, meter: Arc<Meter>) -> Self {
        let map = watch::Sender::new(Map::Unknown(Down::Connecting("not connected yet".into())));
        Self { seeds, dialer, meter, map, stale: Notify::new() }
    }

    /// The current map.
    pub(crate) fn map(&self) -> Map {
        self.map.borrow().clone()
    }

    /// Requests that the map is read again soon.
    pub(crate) fn mark_stale(&self) {
        self.stale.notify_one();
    }

    /// All nodes, masters first.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        let masters = match self.map() {
            Map::KnownMap(known) => known.slots.masters().to_vec(),
            Map::Unknown(_) => Vec::new(),
        };
        let seeds = self.seeds.iter().filter(|seed| !masters.contains(seed));
        masters.iter().chain(seeds).cloned().collect()
    }

    /// Waits for the map.
    pub(crate) async fn known(&self, deadline: Deadline) -> Result<Arc<KnownMap>> {
        if let Map::KnownMap(known) = &*self.map.borrow() {
            return Ok(known.clone());
        }
        let asked = Instant::now();
        let mut map = self.map.subscribe();
        loop {
            let down = match &*map.borrow_and_update() {
                Map::KnownMap(known) => return Ok(known.clone()),
                Map::Unknown(down) => down.clone(),
            };
            if !matches!(timeout_at(down.wait_until(deadline), map.changed()).await, Ok(Ok(()))) {
                return Err(Error::Unavailable { waited: asked.elapsed(), reason: down.reason().to_owned() });
            }
        }
    }

    /// A connection to a node that a redirection named.
    pub(crate) fn connection_to(&self, host: &Host) -> Arc<ServerConnection> {
        let mut found = None;
        self.map.send_if_modified(|map| {
            let Map::KnownMap(known) = map else { return false };
            if let Some(connection) = known.connections.get(host) {
                found = Some(connection.clone());
                return false;
            }
            let connection = Arc::new(self.open_connection(host));
            found = Some(connection.clone());
            let mut connections = known.connections.clone();
            connections.insert(host.clone(), connection);
            *map = Map::KnownMap(Arc::new(KnownMap { slots: known.slots.clone(), connections }));
            true
        });
        found.unwrap_or_else(|| Arc::new(self.open_connection(host)))
    }

    fn open_connection(&self, host: &Host) -> ServerConnection {
        ServerConnection::open(Target::Host(host.clone()), self.dialer.clone(), self.meter.clone())
    }

    /// Reads the map at the start, after every sign of change, and periodically.
    pub(crate) async fn refresh(self: Arc<Self>) {
        let mut backoff = RECONNECT.clone();
        loop {
            match self.topology().await {
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
                            *old = Down::Away(reason.into());
                            true
                        }
                        Map::KnownMap(_) => false,
                    });
                    sleep(backoff.next()).await;
                }
            }
        }
    }

    /// Asks the connected masters, then the seeds, and returns the first map received.
    async fn topology(&self) -> Result<SlotMap, String> {
        let mut said = Vec::new();
        let connections: Vec<(Host, Arc<ServerConnection>)> = match &*self.map.borrow() {
            Map::KnownMap(known) => known
                .connections
                .iter()
                .map(|(host, connection)| (host.clone(), connection.clone()))
                .collect(),
            Map::Unknown(_) => Vec::new(),
        };
        let question = SlotMap::question().into();
        for (host, connection) in connections.iter().filter(|(_, connection)| connection.is_up()) {
            let answer = connection.send(&question, Deadline::at(Instant::now() + CONNECT_LIMIT)).await;
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
        Err(format!("no node reported the slots of the Cluster: {}", said.join("; ")))
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

    /// Replaces the map. Connections to masters that remain are kept; others close when their last user drops them.
    fn publish(&self, slots: SlotMap) {
        self.map.send_if_modified(|map| {
            let old = match map {
                Map::KnownMap(known)
                    if known.slots == slots && known.connections.len() == slots.masters().len() =>
                {
                    return false;
                }
                Map::KnownMap(known) => known.connections.clone(),
                Map::Unknown(_) => HashMap::new(),
            };
            let connection =
                |host: &Host| old.get(host).cloned().unwrap_or_else(|| Arc::new(self.open_connection(host)));
            let connections = slots.masters().iter().map(|host| (host.clone(), connection(host))).collect();
            *map = Map::KnownMap(Arc::new(KnownMap { slots, connections }));
            true
        });
    }
}
