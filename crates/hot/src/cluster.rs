//! A Redis Cluster: one [`Link`] per master, a map of slots, and redirections followed call by call.
//!
//! Written on plain connections because redis-rs's own cluster client repeats a request whose connection
//! died, and a whole pipeline when one of its commands was redirected: what had happened then happens twice.
//! Here only a refusal that says "I did nothing" (MOVED, ASK, TRYAGAIN, CLUSTERDOWN, READONLY) is followed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use redis::{Pipeline, Value};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::address::Host;
use crate::backoff::Backoff;
use crate::dial::{CONNECT_LIMIT, Dialer};
use crate::error::{Error, Result};
use crate::link::{Link, Target};
use crate::meter::Meter;
use crate::script::Call;
use crate::slot::{self, Route};
use crate::slot_map::SlotMap;

/// Between two tries of a call that was refused for a moment, and between two looks at the map.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the map is read without any sign of change.
const SURVEY_EVERY: Duration = Duration::from_secs(30);

/// All masters of a cluster; dropping it ends the connections.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    surveyor: AbortHandle,
}

struct Shared {
    seeds: Vec<Host>,
    dialer: Dialer,
    meter: Arc<Meter>,
    map: watch::Sender<Map>,
    stale: Notify,
}

/// What is known of the cluster: nothing and why, or a map with a link for each master.
#[derive(Clone)]
enum Map {
    Unknown(Arc<str>),
    Known(Arc<Known>),
}

struct Known {
    slots: SlotMap,
    links: HashMap<Host, Arc<Link>>,
}

/// What an answer asks for next.
enum Next {
    Done(Result<Value>),
    Again,
    Moved(Host),
    Ask(Host),
}

impl Cluster {
    /// Starts looking for the masters; must be called inside a tokio runtime.
    pub(crate) fn open(seeds: Vec<Host>, dialer: Dialer, meter: Arc<Meter>) -> Self {
        let map = watch::Sender::new(Map::Unknown("not connected yet".into()));
        let shared = Arc::new(Shared {
            seeds,
            dialer,
            meter,
            map,
            stale: Notify::new(),
        });
        let surveyor = tokio::spawn(shared.clone().keep_map()).abort_handle();
        Self { shared, surveyor }
    }

    /// Runs one call on the master of its slot.
    pub(crate) async fn call(&self, call: &Call, deadline: Instant) -> Result<Value> {
        let route = slot::route(&call.command)?;
        let (mut host, mut link) = self.link(route, deadline).await?;
        loop {
            let answer = link.call(call, deadline).await;
            match self.judge(answer, &host, deadline) {
                Next::Done(answer) => return answer,
                Next::Again => {
                    sleep(PAUSE).await;
                    (host, link) = self.link(route, deadline).await?;
                }
                Next::Moved(owner) => (host, link) = (owner.clone(), self.link_to(&owner)),
                Next::Ask(importer) => return self.ask(&importer, call, deadline).await,
            }
        }
    }

    /// Runs calls in one round trip per master, all masters at once. Answers stand in the calls' order;
    /// each tells of its own call only.
    pub(crate) async fn call_all(&self, calls: &[Call], deadline: Instant) -> Vec<Result<Value>> {
        let mut answers: Vec<Option<Result<Value>>> = calls.iter().map(|_| None).collect();
        let mut routed = Vec::with_capacity(calls.len());
        for (at, call) in calls.iter().enumerate() {
            match slot::route(&call.command) {
                Ok(route) => routed.push((at, route)),
                Err(error) => answers[at] = Some(Err(error)),
            }
        }
        for (at, answer) in self.spread(calls, routed, deadline).await {
            answers[at] = Some(answer);
        }
        answers.into_iter().flatten().collect()
    }

    /// Every master's name and link.
    pub(crate) async fn masters(&self, deadline: Instant) -> Result<Vec<(Host, Arc<Link>)>> {
        let known = self.known(deadline).await?;
        let mut masters: Vec<_> = known
            .links
            .iter()
            .map(|(host, link)| (host.clone(), link.clone()))
            .collect();
        masters.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(masters)
    }

    /// Where subscriptions may connect, best first: any node hears every message.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        let mut hosts = match &*self.shared.map.borrow() {
            Map::Known(known) => known.slots.masters().to_vec(),
            Map::Unknown(_) => Vec::new(),
        };
        hosts.extend(
            self.shared
                .seeds
                .iter()
                .filter(|seed| !hosts.contains(seed))
                .cloned()
                .collect::<Vec<_>>(),
        );
        hosts
    }

    /// Groups calls by the master that owns their slot as far as is known; those with no known owner
    /// go together and wait for one.
    fn by_master(&self, waiting: Vec<(usize, Route)>) -> Vec<Vec<(usize, Route)>> {
        let map = self.shared.map.borrow().clone();
        let mut groups: HashMap<Option<Host>, Vec<(usize, Route)>> = HashMap::new();
        for (index, route) in waiting {
            let owner = match &map {
                Map::Known(known) => known.slots.owner(route).cloned(),
                Map::Unknown(_) => None,
            };
            groups.entry(owner).or_default().push((index, route));
        }
        groups.into_values().collect()
    }

    /// Sends calls to their masters, each master's by themselves: one that is away holds no other up.
    fn spread<'a>(
        &'a self,
        calls: &'a [Call],
        routed: Vec<(usize, Route)>,
        deadline: Instant,
    ) -> BoxFuture<'a, Vec<(usize, Result<Value>)>> {
        let groups = self.by_master(routed);
        let sent = groups
            .into_iter()
            .map(move |group| self.send_group(calls, group, deadline));
        join_all(sent)
            .map(|groups| groups.into_iter().flatten().collect())
            .boxed()
    }

    async fn send_group(
        &self,
        calls: &[Call],
        group: Vec<(usize, Route)>,
        deadline: Instant,
    ) -> Vec<(usize, Result<Value>)> {
        let sent = async {
            let (host, link) = self.link(group[0].1, deadline).await?;
            let together: Vec<&Call> = group.iter().map(|(at, _)| &calls[*at]).collect();
            let answers = link.call_all(&together, deadline).await;
            if answers.is_err() {
                self.shared.stale.notify_one();
            }
            Ok::<_, Error>((host, answers?))
        };
        let (host, answers) = match sent.await {
            Ok(sent) => sent,
            Err(error) => {
                return group
                    .into_iter()
                    .map(|(at, _)| (at, Err(error.clone())))
                    .collect();
            }
        };
        let (mut done, mut again) = (Vec::with_capacity(group.len()), Vec::new());
        for ((at, route), answer) in group.into_iter().zip(answers) {
            match self.judge(answer, &host, deadline) {
                Next::Done(answer) => done.push((at, answer)),
                Next::Ask(importer) => done.push((at, self.ask(&importer, &calls[at], deadline).await)),
                Next::Again | Next::Moved(_) => again.push((at, route)),
            }
        }
        if !again.is_empty() {
            sleep(PAUSE).await;
            done.extend(self.spread(calls, again, deadline).await);
        }
        done
    }

    /// Decides what an answer from `host` asks for. When the time is up, a refusal stands as it is.
    fn judge(&self, answer: Result<Value>, host: &Host, deadline: Instant) -> Next {
        let Err(error) = answer else {
            return Next::Done(answer);
        };
        let Error::Refused { code, detail } = &error else {
            self.shared.stale.notify_one();
            return Next::Done(Err(error));
        };
        let in_time = Instant::now() + PAUSE < deadline;
        match (code.as_str(), redirection(detail, host)) {
            ("MOVED", Some(owner)) if in_time => {
                self.shared.stale.notify_one();
                Next::Moved(owner)
            }
            ("ASK", Some(importer)) if in_time => Next::Ask(importer),
            _ if in_time && (error.is_passing() || error.is_readonly()) => {
                self.shared.stale.notify_one();
                Next::Again
            }
            _ => Next::Done(Err(error)),
        }
    }

    /// Runs a call on a node that is taking its slot over. ASKING counts for the very next command of the
    /// connection, so the two go as one pipeline, which is never split. A script goes with its source: the
    /// node need not know it.
    async fn ask(&self, importer: &Host, call: &Call, deadline: Instant) -> Result<Value> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline
            .add_command(redis::cmd("ASKING"))
            .add_command(call.with_source());
        let answers = self.link_to(importer).send_all(&pipeline, deadline).await?;
        answers
            .into_iter()
            .nth(1)
            .unwrap_or_else(|| Err(Error::reply("no answer after ASKING")))
    }

    /// The link of a route's master, once it is up; the map may change meanwhile.
    async fn link(&self, route: Route, deadline: Instant) -> Result<(Host, Arc<Link>)> {
        loop {
            let known = self.known(deadline).await?;
            if let Some(host) = known.slots.owner(route)
                && let Some(link) = known.links.get(host)
            {
                let soon = deadline.min(Instant::now() + 4 * PAUSE);
                match link.ready(soon).await {
                    Ok(()) => return Ok((host.clone(), link.clone())),
                    Err(error) if Instant::now() >= deadline => return Err(error),
                    Err(_) => {}
                }
            } else if Instant::now() >= deadline {
                let reason = "no master serves the slot".to_owned();
                return Err(Error::Unavailable {
                    waited: deadline.elapsed(),
                    reason,
                });
            }
            self.shared.stale.notify_one();
            sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// A link to a node that a redirection named, known or not.
    fn link_to(&self, host: &Host) -> Arc<Link> {
        let mut found = None;
        self.shared.map.send_if_modified(|map| {
            let Map::Known(known) = map else { return false };
            if let Some(link) = known.links.get(host) {
                found = Some(link.clone());
                return false;
            }
            let link = Arc::new(self.shared.open_link(host));
            found = Some(link.clone());
            let mut links = known.links.clone();
            links.insert(host.clone(), link);
            *map = Map::Known(Arc::new(Known {
                slots: known.slots.clone(),
                links,
            }));
            true
        });
        found.unwrap_or_else(|| Arc::new(self.shared.open_link(host)))
    }

    async fn known(&self, deadline: Instant) -> Result<Arc<Known>> {
        let asked = Instant::now();
        let mut map = self.shared.map.subscribe();
        let known = map.wait_for(|map| matches!(map, Map::Known(_)));
        if let Ok(Ok(map)) = timeout_at(deadline, known).await
            && let Map::Known(known) = &*map
        {
            return Ok(known.clone());
        }
        let reason = match &*self.shared.map.borrow() {
            Map::Unknown(reason) => reason.to_string(),
            Map::Known(_) => "connected too late".to_owned(),
        };
        Err(Error::Unavailable {
            waited: asked.elapsed(),
            reason,
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.surveyor.abort();
    }
}

impl Shared {
    fn open_link(&self, host: &Host) -> Link {
        Link::open(
            Target::Host(host.clone()),
            self.dialer.clone(),
            self.meter.clone(),
        )
    }

    /// Reads the map at the start, at every sign of change, and now and then.
    async fn keep_map(self: Arc<Self>) {
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
            Map::Known(known) => known
                .links
                .iter()
                .map(|(host, link)| (host.clone(), link.clone()))
                .collect(),
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
        let answer = asked
            .await
            .inspect_err(|_| self.meter.connect_failed())
            .map_err(|error| error.to_string())?;
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
            let link = |host: &Host| {
                old.get(host)
                    .cloned()
                    .unwrap_or_else(|| Arc::new(self.open_link(host)))
            };
            let links = slots
                .masters()
                .iter()
                .map(|host| (host.clone(), link(host)))
                .collect();
            *map = Map::Known(Arc::new(Known { slots, links }));
            true
        });
    }
}

/// The node that `MOVED 3999 host:port` names. An empty host is the one that answered.
fn redirection(detail: &str, answered: &Host) -> Option<Host> {
    let (_, address) = detail.split_once(' ')?;
    let (name, port) = address.rsplit_once(':')?;
    let name = if name.is_empty() {
        answered.name.clone()
    } else {
        name.trim_matches(['[', ']']).to_owned()
    };
    Some(Host {
        name,
        port: port.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_a_host_or_means_the_one_that_answered() {
        let here = Host {
            name: "10.0.0.1".into(),
            port: 1,
        };
        let to = |name: &str, port| {
            Some(Host {
                name: name.into(),
                port,
            })
        };
        assert_eq!(redirection("3999 10.0.0.2:6381", &here), to("10.0.0.2", 6381));
        assert_eq!(redirection("3999 :6381", &here), to("10.0.0.1", 6381));
        assert_eq!(redirection("3999 ::1:6381", &here), to("::1", 6381));
        assert_eq!(redirection("nonsense", &here), None);
    }
}
