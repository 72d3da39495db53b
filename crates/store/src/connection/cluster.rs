//! A Redis Cluster: one [`ServerConnection`] per master, a map of slots, and redirections followed call by call.
//!
//! Written on plain connections because redis-rs's own cluster client repeats a request whose connection was lost, and
//! a whole pipeline when one of its commands was redirected, so commands may run twice. This client retries only after
//! a refusal that guarantees that nothing was executed (MOVED, ASK, TRYAGAIN, CLUSTERDOWN, READONLY).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use hob_commands::key_slot;
use redis::Value;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::address::Host;
use crate::connection::deadline::Deadline;
use crate::connection::dial::Dialer;
use crate::connection::route::{self, Route};
use crate::connection::server::ServerConnection;
use crate::connection::topology::{Map, Topology};
use crate::error::{Error, Result};
use crate::health::meter::Meter;
use crate::script::Call;

/// The pause before a temporarily refused call is retried.
const PAUSE: Duration = Duration::from_millis(50);

/// All masters of a Cluster. Dropping this closes the connections.
pub(crate) struct Cluster {
    topology: Arc<Topology>,
    refresher: AbortHandle,
}

/// What to do after an answer.
enum Next {
    Done(Result<Value>),
    Again,
    Moved(Host),
    Ask(Host),
}

impl Cluster {
    /// Starts discovering the masters; must be called inside a tokio runtime.
    pub(crate) fn open(seeds: Vec<Host>, dialer: Dialer, meter: Arc<Meter>) -> Self {
        let topology = Arc::new(Topology::new(seeds, dialer, meter));
        let refresher = tokio::spawn(topology.clone().refresh()).abort_handle();
        Self { topology, refresher }
    }

    /// Runs one call on the master of its slot.
    pub(crate) async fn call(&self, call: &Call, deadline: Deadline) -> Result<Value> {
        let route = route::route(&call.command)?;
        let (mut host, connection) = self.connection(route, deadline).await?;
        let mut answer = connection.call(call, deadline).await;
        let mut moved = false;
        loop {
            answer = match self.classify(answer, &host, deadline) {
                Next::Done(answer) => return answer,
                // If two nodes redirect to each other, the call is retried with a pause until they agree.
                Next::Moved(owner) if !moved => {
                    moved = true;
                    host = owner;
                    self.topology.connection_to(&host).call(call, deadline).await
                }
                Next::Ask(importer) => {
                    host = importer;
                    self.ask(&host, call, deadline).await
                }
                Next::Again | Next::Moved(_) => {
                    sleep(PAUSE).await;
                    let (owner, connection) = self.connection(route, deadline).await?;
                    host = owner;
                    connection.call(call, deadline).await
                }
            };
        }
    }

    /// Runs calls in one round trip per master, on all masters at the same time. Answers are in the order of the calls,
    /// each with its own error.
    pub(crate) async fn call_all(&self, calls: &[Call], deadline: Deadline) -> Vec<Result<Value>> {
        let mut answers: Vec<Option<Result<Value>>> = calls.iter().map(|_| None).collect();
        let mut routed = Vec::with_capacity(calls.len());
        for (at, call) in calls.iter().enumerate() {
            match route::route(&call.command) {
                Ok(route) => routed.push((at, route)),
                Err(error) => answers[at] = Some(Err(error)),
            }
        }
        for (at, answer) in self.spread(calls, routed, deadline).await {
            answers[at] = Some(answer);
        }
        answers.into_iter().flatten().collect()
    }

    /// Reads the history of the server that has a key again.
    pub(crate) async fn read_history(&self, key: &[u8], deadline: Deadline) -> Result<()> {
        let (_, connection) = self.connection(Route::Slot(key_slot(key)), deadline).await?;
        connection.read_history(deadline).await
    }

    /// The masters and their connections, sorted by host.
    pub(crate) async fn masters(&self, deadline: Deadline) -> Result<Vec<(Host, Arc<ServerConnection>)>> {
        let known = self.topology.known(deadline).await?;
        let connection = |host: &Host| Some((host.clone(), known.connections.get(host)?.clone()));
        let mut masters: Vec<_> = known.slots.masters().iter().filter_map(connection).collect();
        masters.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(masters)
    }

    /// The nodes to subscribe on, masters first: every node receives every message.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        self.topology.hosts()
    }

    /// Groups calls by the master that owns their slot. Calls without a known owner form one group, which waits
    /// for an owner.
    fn by_master(&self, waiting: Vec<(usize, Route)>) -> Vec<Vec<(usize, Route)>> {
        let map = self.topology.map();
        let mut groups: HashMap<Option<Host>, Vec<(usize, Route)>> = HashMap::new();
        for (index, route) in waiting {
            let owner = match &map {
                Map::KnownMap(known) => known.host(route).cloned(),
                Map::Unknown(_) => None,
            };
            groups.entry(owner).or_default().push((index, route));
        }
        groups.into_values().collect()
    }

    /// Sends calls to their masters in parallel, so that an unavailable master does not delay the others.
    fn spread<'a>(
        &'a self,
        calls: &'a [Call],
        routed: Vec<(usize, Route)>,
        deadline: Deadline,
    ) -> BoxFuture<'a, Vec<(usize, Result<Value>)>> {
        let groups = self.by_master(routed);
        let sent = groups.into_iter().map(move |group| self.send_group(calls, group, deadline));
        join_all(sent).map(|groups| groups.into_iter().flatten().collect()).boxed()
    }

    async fn send_group(
        &self,
        calls: &[Call],
        group: Vec<(usize, Route)>,
        deadline: Deadline,
    ) -> Vec<(usize, Result<Value>)> {
        let sent = async {
            let (host, connection) = self.connection(group[0].1, deadline).await?;
            let together: Vec<&Call> = group.iter().map(|(at, _)| &calls[*at]).collect();
            let answers = connection.call_all(&together, deadline).await;
            if answers.is_err() {
                self.topology.mark_stale();
            }
            Ok::<_, Error>((host, answers?))
        };
        let (host, answers) = match sent.await {
            Ok(sent) => sent,
            Err(error) => {
                return group.into_iter().map(|(at, _)| (at, Err(error.clone()))).collect();
            }
        };
        let (mut done, mut again) = (Vec::with_capacity(group.len()), Vec::new());
        for ((at, route), answer) in group.into_iter().zip(answers) {
            match self.classify(answer, &host, deadline) {
                Next::Done(answer) => done.push((at, answer)),
                Next::Ask(_) => done.push((at, self.call(&calls[at], deadline).await)),
                Next::Again | Next::Moved(_) => again.push((at, route)),
            }
        }
        if !again.is_empty() {
            sleep(PAUSE).await;
            done.extend(self.spread(calls, again, deadline).await);
        }
        done
    }

    /// Decides what to do after an answer from `host`. After the deadline a refusal is returned.
    fn classify(&self, answer: Result<Value>, host: &Host, deadline: Deadline) -> Next {
        let Err(error) = answer else {
            return Next::Done(answer);
        };
        let Error::Refused { code, detail } = &error else {
            self.topology.mark_stale();
            return Next::Done(Err(error));
        };
        let in_time = Instant::now() + PAUSE < deadline.retry_at;
        match (code.as_str(), redirection(detail, host)) {
            ("MOVED", Some(owner)) if in_time => {
                self.topology.mark_stale();
                Next::Moved(owner)
            }
            ("ASK", Some(importer)) if in_time => Next::Ask(importer),
            _ if in_time && (error.is_transient() || error.is_readonly()) => {
                self.topology.mark_stale();
                Next::Again
            }
            _ => Next::Done(Err(error)),
        }
    }

    /// Runs a call on a node that is importing its slot. ASKING applies only to the next command of the connection, so
    /// both commands are sent in one pipeline, which is never split. A script is sent with its source, because the node
    /// may not have it.
    async fn ask(&self, importer: &Host, call: &Call, deadline: Deadline) -> Result<Value> {
        let calls = [&redis::cmd("ASKING").into(), &call.with_source()];
        let answers = self.topology.connection_to(importer).send_all(&calls, deadline).await?;
        answers.into_iter().nth(1).unwrap_or_else(|| Err(Error::reply("no answer after ASKING")))
    }

    /// The connection to the master of a route, once it is up. The slot map may change while waiting.
    async fn connection(&self, route: Route, deadline: Deadline) -> Result<(Host, Arc<ServerConnection>)> {
        let asked = Instant::now();
        loop {
            let known = self.topology.known(deadline).await?;
            let (mut reason, mut wait_until) = ("no master serves the slot".to_owned(), deadline.away_at);
            if let Some(host) = known.host(route)
                && let Some(connection) = known.connections.get(host)
            {
                match connection.ready(deadline.not_after(Instant::now() + 4 * PAUSE)).await {
                    Ok(()) => return Ok((host.clone(), connection.clone())),
                    Err(Error::Unavailable { reason: why, .. }) => reason = why,
                    Err(error) => return Err(error),
                }
                if !connection.is_away() {
                    wait_until = deadline.at;
                }
            }
            if Instant::now() >= wait_until {
                return Err(Error::Unavailable { waited: asked.elapsed(), reason });
            }
            self.topology.mark_stale();
            sleep(PAUSE.min(wait_until.saturating_duration_since(Instant::now()))).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

/// The node in `MOVED 3999 host:port`. An empty host means the node that answered.
fn redirection(detail: &str, answered: &Host) -> Option<Host> {
    let (_, address) = detail.split_once(' ')?;
    let (name, port) = address.rsplit_once(':')?;
    let name = if name.is_empty() { answered.name.clone() } else { name.trim_matches(['[', ']']).to_owned() };
    Some(Host { name, port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirection_without_a_host_means_the_answering_node() {
        let here = Host { name: "10.0.0.1".into(), port: 1 };
        let to = |name: &str, port| Some(Host { name: name.into(), port });
        assert_eq!(redirection("3999 10.0.0.2:6381", &here), to("10.0.0.2", 6381));
        assert_eq!(redirection("3999 :6381", &here), to("10.0.0.1", 6381));
        assert_eq!(redirection("3999 ::1:6381", &here), to("::1", 6381));
        assert_eq!(redirection("nonsense", &here), None);
    }
}
