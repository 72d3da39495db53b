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
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::address::Host;
use crate::dial::Dialer;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::meter::Meter;
use crate::script::Call;
use crate::slot::{self, Route};
use crate::survey::{Map, Survey};

/// Between two tries of a call that was refused for a moment.
const PAUSE: Duration = Duration::from_millis(50);

/// All masters of a cluster; dropping it ends the connections.
pub(crate) struct Cluster {
    survey: Arc<Survey>,
    surveyor: AbortHandle,
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
        let survey = Arc::new(Survey::new(seeds, dialer, meter));
        let surveyor = tokio::spawn(survey.clone().keep_map()).abort_handle();
        Self { survey, surveyor }
    }

    /// Runs one call on the master of its slot.
    pub(crate) async fn call(&self, call: &Call, deadline: Instant) -> Result<Value> {
        let route = slot::route(&call.command)?;
        let (mut host, link) = self.link(route, deadline).await?;
        let mut answer = link.call(call, deadline).await;
        let mut moved = false;
        loop {
            answer = match self.judge(answer, &host, deadline) {
                Next::Done(answer) => return answer,
                // Two nodes that send us to each other are asked at leisure until they agree.
                Next::Moved(owner) if !moved => {
                    moved = true;
                    host = owner;
                    self.survey.link_to(&host).call(call, deadline).await
                }
                Next::Ask(importer) => {
                    host = importer;
                    self.ask(&host, call, deadline).await
                }
                Next::Again | Next::Moved(_) => {
                    sleep(PAUSE).await;
                    let (owner, link) = self.link(route, deadline).await?;
                    host = owner;
                    link.call(call, deadline).await
                }
            };
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

    /// Every master's name and link, in the order of their names.
    pub(crate) async fn masters(&self, deadline: Instant) -> Result<Vec<(Host, Arc<Link>)>> {
        let known = self.survey.known(deadline).await?;
        let link = |host: &Host| Some((host.clone(), known.links.get(host)?.clone()));
        let mut masters: Vec<_> = known.slots.masters().iter().filter_map(link).collect();
        masters.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(masters)
    }

    /// Where subscriptions may connect, masters first: any node hears every message.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        self.survey.hosts()
    }

    /// Groups calls by the master that owns their slot as far as is known; those with no known owner
    /// go together and wait for one.
    fn by_master(&self, waiting: Vec<(usize, Route)>) -> Vec<Vec<(usize, Route)>> {
        let map = self.survey.map();
        let mut groups: HashMap<Option<Host>, Vec<(usize, Route)>> = HashMap::new();
        for (index, route) in waiting {
            let owner = match &map {
                Map::Known(known) => known.host(route).cloned(),
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
        let sent = groups.into_iter().map(move |group| self.send_group(calls, group, deadline));
        join_all(sent).map(|groups| groups.into_iter().flatten().collect()).boxed()
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
                self.survey.mark_stale();
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
            match self.judge(answer, &host, deadline) {
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

    /// Decides what an answer from `host` asks for. When the time is up, a refusal stands as it is.
    fn judge(&self, answer: Result<Value>, host: &Host, deadline: Instant) -> Next {
        let Err(error) = answer else {
            return Next::Done(answer);
        };
        let Error::Refused { code, detail } = &error else {
            self.survey.mark_stale();
            return Next::Done(Err(error));
        };
        let in_time = Instant::now() + PAUSE < deadline;
        match (code.as_str(), redirection(detail, host)) {
            ("MOVED", Some(owner)) if in_time => {
                self.survey.mark_stale();
                Next::Moved(owner)
            }
            ("ASK", Some(importer)) if in_time => Next::Ask(importer),
            _ if in_time && (error.is_passing() || error.is_readonly()) => {
                self.survey.mark_stale();
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
        pipeline.add_command(redis::cmd("ASKING")).add_command(call.with_source());
        let answers = self.survey.link_to(importer).send_all(&pipeline, deadline).await?;
        answers.into_iter().nth(1).unwrap_or_else(|| Err(Error::reply("no answer after ASKING")))
    }

    /// The link of a route's master, once it is up; the map may change meanwhile.
    async fn link(&self, route: Route, deadline: Instant) -> Result<(Host, Arc<Link>)> {
        let asked = Instant::now();
        loop {
            let known = self.survey.known(deadline).await?;
            let mut reason = "no master serves the slot".to_owned();
            if let Some(host) = known.host(route)
                && let Some(link) = known.links.get(host)
            {
                match link.ready(deadline.min(Instant::now() + 4 * PAUSE)).await {
                    Ok(()) => return Ok((host.clone(), link.clone())),
                    Err(Error::Unavailable { reason: why, .. }) => reason = why,
                    Err(error) => return Err(error),
                }
            }
            if Instant::now() >= deadline {
                return Err(Error::Unavailable { waited: asked.elapsed(), reason });
            }
            self.survey.mark_stale();
            sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.surveyor.abort();
    }
}

/// The node that `MOVED 3999 host:port` names. An empty host is the one that answered.
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
    fn a_redirection_names_a_host_or_means_the_one_that_answered() {
        let here = Host { name: "10.0.0.1".into(), port: 1 };
        let to = |name: &str, port| Some(Host { name: name.into(), port });
        assert_eq!(redirection("3999 10.0.0.2:6381", &here), to("10.0.0.2", 6381));
        assert_eq!(redirection("3999 :6381", &here), to("10.0.0.1", 6381));
        assert_eq!(redirection("3999 ::1:6381", &here), to("::1", 6381));
        assert_eq!(redirection("nonsense", &here), None);
    }
}
